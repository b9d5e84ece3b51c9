"""Where CK comes from, and its code generator run as a program."""

"""CK's source trees, and their code generator run as a program."""

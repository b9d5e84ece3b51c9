"""What the timing model says of a library's workgroups: tables, and pictures of their waves."""

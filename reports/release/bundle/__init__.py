"""A release: a folder and an archive of it, and their verification."""

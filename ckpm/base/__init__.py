"""Helpers of all rooms: errors and exit codes, the frame of a command line, whole files, typed reading of YAML."""

"""Helpers of all rooms: errors and exit codes, running commands, atomic writing, typed reading of YAML."""

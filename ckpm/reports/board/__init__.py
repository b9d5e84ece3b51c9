"""The first run on a GPU: one command with a table of steps, and one file that answers what the emulator can't."""

"""Suites for a built library, on a GPU or on the emulator, against a float64 reference."""

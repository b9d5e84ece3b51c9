"""Defects planted in the machine code of a built library: ``nox -s tests -- mutants``."""

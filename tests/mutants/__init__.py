"""Defects planted in the machine code of a built library, and what sees them: ``nox -s test-mutants``."""

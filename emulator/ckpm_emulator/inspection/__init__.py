"""Static checks of machine code."""

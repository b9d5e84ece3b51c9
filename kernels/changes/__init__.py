"""Find what a change can touch: `python -m kernels plan --since REV`."""

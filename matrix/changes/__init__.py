"""What a change can touch: `python -m matrix plan --since REV`."""

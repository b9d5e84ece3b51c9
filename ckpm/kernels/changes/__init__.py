"""Find what a change can touch: `ckpm plan --since REV`."""

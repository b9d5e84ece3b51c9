"""What a change can touch: `ckpm plan --since REV`."""

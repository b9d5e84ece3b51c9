"""What machine code tells without running."""

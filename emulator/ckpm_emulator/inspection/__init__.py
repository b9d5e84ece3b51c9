"""What machine code shows without running."""

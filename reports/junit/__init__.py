"""JUnit XML written and merged."""

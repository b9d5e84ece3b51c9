"""Machine code to the micro-ops that the core executes."""

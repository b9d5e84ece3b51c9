"""The tile engine: compile a configuration's kernels, run each on each shape that it serves, and keep the figures."""

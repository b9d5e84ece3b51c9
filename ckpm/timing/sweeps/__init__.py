"""The tile engine: a configuration's kernels compiled, each run on each shape that it serves, figures kept."""

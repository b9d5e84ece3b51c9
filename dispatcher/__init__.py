"""From a problem to a running kernel: see docs/reference/dispatcher.md and docs/reference/jit.md."""

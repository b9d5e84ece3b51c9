"""From a problem to a running kernel: docs/reference/dispatcher.md."""

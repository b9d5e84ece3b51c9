"""Kernels compiled when they are needed, and kept for later calls (docs/reference/jit.md)."""

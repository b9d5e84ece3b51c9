"""Kernels compiled when they are asked for, and kept for whoever asks next (docs/reference/jit.md)."""

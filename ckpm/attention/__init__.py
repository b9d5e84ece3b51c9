"""Attention calls over built or compiled kernels: see docs/reference/dispatcher.md and docs/reference/jit.md."""

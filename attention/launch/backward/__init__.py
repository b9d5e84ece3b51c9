"""Backward passes on a device: the struct of their C ABI, and what of a problem goes where."""

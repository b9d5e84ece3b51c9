"""Backward passes as cases: what they get, and the float64 gradients that they are compared with."""

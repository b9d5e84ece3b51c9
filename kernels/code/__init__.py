"""Compilers, and what they make: code objects, symbols."""

"""Compilers and their output: code objects, symbols."""

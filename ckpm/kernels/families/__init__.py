"""Families of kernels as C++: words, templates, units."""

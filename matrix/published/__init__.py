"""Stored lists of upstream's kernel names, and comparing name lists."""

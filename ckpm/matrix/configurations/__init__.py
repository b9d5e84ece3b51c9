"""Configurations written by hand: reading, validating, sweeping."""

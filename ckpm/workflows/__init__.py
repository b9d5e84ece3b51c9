"""Render GitHub's workflows from a table and templates, and run them here; the programs of their steps."""

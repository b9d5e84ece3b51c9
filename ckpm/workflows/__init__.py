"""Render GitHub's workflows from a table and templates, run them here, and the programs of their steps."""

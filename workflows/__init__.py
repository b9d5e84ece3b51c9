"""Render GitHub's workflows from a table and templates, and the programs of their steps."""

"""Render GitHub's workflows from a table and templates, and run them here; programs of their steps and of .ci/run."""

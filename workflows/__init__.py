"""GitHub's workflows: rendered from a table and templates, run here step by step, and what their steps call."""

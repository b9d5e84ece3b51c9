"""Verdicts: figures against baselines, budgets and another library's times."""

"""Results: JUnit XML, tables, gates and baselines."""

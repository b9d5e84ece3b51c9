"""What came out: JUnit XML, tables, gates and baselines."""

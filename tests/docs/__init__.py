"""The pages of docs/ and README: `nox -s tests -- docs` runs them, tests/unit/test_docs.py checks their text."""

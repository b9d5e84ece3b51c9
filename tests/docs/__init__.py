"""The pages of docs/ and README: what they show is run (``nox -s tests -- docs``); tests/unit/test_docs.py reads it."""

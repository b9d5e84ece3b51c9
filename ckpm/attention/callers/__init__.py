"""Calls with the names and conventions of other packages, so that a caller changes an import."""

"""Signatures of known defects, so that a second defect beside one is seen."""

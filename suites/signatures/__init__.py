"""What known defects leave behind, so that a second defect beside one is seen."""

"""Problems: the launches that suites, gates and the tile engine try, with the ledger of known defects."""

"""Problems: the launches of suites, gates and the tile engine, and the ledger of known defects."""

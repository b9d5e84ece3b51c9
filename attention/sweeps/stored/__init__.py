"""Results of ``ckpm sweep run``: columns, the file of results, the best kernels."""

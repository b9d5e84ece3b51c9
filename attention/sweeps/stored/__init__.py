"""What ``ckpm sweep run`` leaves, for whoever reads it: columns, the file of results, the best kernels."""

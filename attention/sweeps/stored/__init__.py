"""What ``python -m kernels benchmark`` leaves, for whoever reads it: columns, the file of results, the best kernels."""

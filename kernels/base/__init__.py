"""Shared parts of kernels/: files, locks, processes, caches, the console, results of checks."""

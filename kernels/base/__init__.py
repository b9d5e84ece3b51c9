"""What the rooms of kernels/ share: files, locks, processes, caches, the console, results of checks."""

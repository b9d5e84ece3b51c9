"""Builds and suites over many machines: Dask distributed, by itself or on Slurm; and what that would take, on paper."""

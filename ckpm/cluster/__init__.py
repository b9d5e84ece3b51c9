"""Run builds and suites on many machines: the workers of a Dask scheduler, or jobs of Slurm."""

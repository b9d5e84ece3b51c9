"""Build, test and launch AMD Composable Kernel attention kernels. docs/reference/python.md lists the functions."""

__version__ = "0.1.0"

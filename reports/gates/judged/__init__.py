"""The subjects of the gates: built libraries, and the decode kernels."""

"""What the gates judge: built libraries, and the decode kernels."""

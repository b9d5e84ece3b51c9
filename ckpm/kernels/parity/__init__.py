"""The matrix and our C++ text compared with upstream's."""

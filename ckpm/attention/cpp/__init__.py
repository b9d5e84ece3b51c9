"""Tools for C++ programs: the index that attention/include/ckpm_dispatcher.hpp reads, and declared kernel sets."""

"""Tools for C++ programs: the index that ckpm_dispatcher.hpp reads, and declared kernel sets."""

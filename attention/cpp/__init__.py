"""What programs in C++ need: attention/include/ckpm_dispatcher.hpp, the index that it reads, declared kernel sets."""

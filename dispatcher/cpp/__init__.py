"""What programs in C++ need: dispatcher/include/ckpm_dispatcher.hpp, the index that it reads, declared kernel sets."""

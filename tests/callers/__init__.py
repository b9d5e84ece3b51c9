"""Test files of callers, unmodified, from clones: their calls are served by this project on the emulated device."""

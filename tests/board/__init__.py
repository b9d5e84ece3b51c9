"""The first run on a GPU, rehearsed on the emulator's runtime in the place of ROCm's."""

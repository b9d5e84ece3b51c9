"""An emulated gfx9 device: AMD machine code, run on the CPU through the HIP runtime's ABI."""

"""An emulated gfx9 device: AMD machine code, run on the CPU behind the HIP runtime's ABI. Imports no other room."""

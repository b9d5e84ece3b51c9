"""How kernels are built: templates, HIP headers, toolchains, upstream trees, units, code-object metadata."""

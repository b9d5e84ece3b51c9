"""The build of kernels: templates, HIP headers, toolchains, upstream trees, units, code-object metadata."""

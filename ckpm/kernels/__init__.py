"""The build of kernels: templates, toolchains, upstream trees, units, code-object metadata."""

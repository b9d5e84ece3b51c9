"""Keys, axes, rules, names and selections of CK FMHA kernels, as tables (YAML) and pure functions."""

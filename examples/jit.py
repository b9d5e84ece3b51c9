"""Kernels on demand: two at once if they aren't in the cache, then loaded; and a second time, from the cache."""

from ckpm.attention.jit.compiling import compile_each, where
from ckpm.attention.jit.loading import load
from ckpm.attention.launch.device import choose
from ckpm.base.rocm_choice import default_device
from examples.kernels import ARCH, declare

device = choose(default_device(), ARCH)
keys = [instance.key for instance in declare("batch_prefill", "batch_prefill_128")]
for turn in ("first", "second"):
    finished = list(compile_each(keys, ARCH, where("aiter")))  # each as soon as it is finished
    for kernel in sorted(finished, key=lambda each: each.name):
        library = load(kernel.folder, device)
        print(f"{turn}: {library.family}, kernel {kernel.name}")
        print(f"  {'compiled' if kernel.compiled else 'from the cache'}, rendered in {kernel.render:.2f} s, ", end="")
        print(f"waited {kernel.wait:.2f} s, built in {kernel.build:.2f} s")
        if list(library.kernels) != [kernel.name] or (turn == "second" and kernel.compiled):
            raise SystemExit(1)

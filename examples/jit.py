"""Kernels on demand: two at once if they aren't in the cache, then loaded; and a second time, from the cache."""

from ckpm.attention.jit.compiling import compile_each, where
from ckpm.attention.jit.loading import load
from ckpm.attention.launch.device import choose
from examples.kernels import ARCH, declare

device = choose("auto", ARCH)
asked = [one.key for one in declare("batch_prefill", "batch_prefill_128")]
for turn in ("first", "second"):
    finished = list(compile_each(asked, ARCH, where("aiter")))  # each as soon as it is finished
    for one in sorted(finished, key=lambda each: each.name):
        library = load(one.folder, device)
        print(f"{turn}: {library.family}, kernel {one.name}")
        print(f"  {'compiled' if one.compiled else 'from the cache'}, rendered in {one.render:.2f} s, ", end="")
        print(f"waited {one.wait:.2f} s, built in {one.build:.2f} s")
        if list(library.kernels) != [one.name] or (turn == "second" and one.compiled):
            raise SystemExit(1)

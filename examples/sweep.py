"""A sweep: every kernel on every length, verified, into a tuning database, by which order `measured` then chooses.

On a GPU kernels are compared by milliseconds, on the emulator by wave-instructions, which are counts and no times.
"""

import tempfile
from pathlib import Path

from ckpm import Dispatcher, Instance, Measurement, Registry, Timing, TuningDatabase
from ckpm.attention.jit.compiling import compile_keys
from ckpm.attention.launch.device import choose
from ckpm.attention.selection import Heuristic
from ckpm.base.rocm_choice import default_device
from ckpm.kernels.library.request import LIBRARY
from examples import kernels, paging, results


def alone(kernel: Instance) -> Heuristic:
    return lambda problem, able: [kernel]


device, registry = choose(default_device(), kernels.ARCH), Registry()
for folder in compile_keys(
    [instance.key for instance in kernels.declare("batch_prefill", "batch_prefill_128")], kernels.ARCH
):
    registry.add_library(folder / LIBRARY)
timing = Timing(warmups=5, repeats=20) if device.kind == "hip" else Timing()
with tempfile.TemporaryDirectory() as scratch:
    base = TuningDatabase(Path(scratch, "tuning.db"))
    measured = Dispatcher(registry, device, order="measured", tuning=base)
    for lengths in (((40, 20), (70, 25)), ((128,), (200,))):
        cache = paging.sequences(11, *lengths)
        print("\nQ of", *lengths[0], "tokens, K of", *lengths[1])
        least = {}
        for instance in registry.instances():
            dispatcher = Dispatcher(registry, device, order=alone(instance))
            done, counts = results.count(
                device, lambda dispatcher=dispatcher, cache=cache: cache.call(dispatcher, timing=timing)
            )
            value, unit = (counts["instructions"], "wave-instructions") if counts else (done.ran.median, "ms")
            print(f"{value:>7,} {unit}: rows of {instance.key.tile.bm0}, ", end="")
            cache.check(done)
            least[instance.name] = value
            base.add(done.problem, device.kind, [Measurement(kernel=instance.name, value=value, unit=unit)])
        best = cache.call(measured)
        results.show_kernels(measured, best)
        cache.check(best)
        if least[best.ran.kernels[0]] != min(least.values()):
            raise SystemExit("the order `measured` did not choose the fastest kernel")

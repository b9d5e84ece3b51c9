"""A sweep: every kernel on every length, verified, into a tuning database; the least of each then chosen by `measured`.

On a GPU they are compared by milliseconds, on the emulator by cycles of the matrix cores and then wave-instructions.
"""

import tempfile
from pathlib import Path

import numpy as np

from dispatcher import Measurement, Timing, TuningDatabase, fmha, reference
from examples import kernels, paging, results

NAMES = ("batch_prefill", "batch_prefill_128")
cache = paging.sequences(11)
with tempfile.TemporaryDirectory() as folder:
    base = TuningDatabase(Path(folder, "tuning.db"))
    for name in NAMES:
        over = kernels.dispatcher(name)
        timing = Timing(warmups=1, repeats=3) if over.device.kind == "hip" else Timing()
        done, counts = results.counted(over.device, lambda over=over, timing=timing: cache.call(over, timing=timing))
        value, unit = (counts["instructions"], "wave-instructions") if counts else (done.ran.median, "ms")
        print(f"{value:>8,} {unit}  {done.ran.kernels[0]}")
        cache.check(done)
        base.add(done.problem, over.device.kind, [Measurement(kernel=done.ran.kernels[0], value=value, unit=unit)])
    over = kernels.dispatcher(*NAMES, order="measured", tuning=base)
    best = cache.call(over)
    results.show_kernels(over, best)
    cache.check(best)
    if best.ran.kernels[0] != base.measured(best.problem, over.device.kind)[0].kernel:
        raise SystemExit(1)

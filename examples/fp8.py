"""fp8 with scales: Q, K and V are stored as x / scale in e4m3, O comes as bf16."""

import numpy as np

from ckpm import fmha
from ckpm.attention import reference
from examples import kernels, results

SCALES = 0.5, 0.25, 2.0  # what 1.0 of Q, K and V in fp8 stands for
random = np.random.default_rng(9)
stored = [results.numbers(random, 1, length, 2, 128, dtype="fp8bf16") for length in (100, 150, 150)]
q, k, v = stored
dispatcher = kernels.dispatcher("fp8")
done, counts = results.count(
    dispatcher.device, lambda: fmha(q, k, v, dtype="fp8bf16", descales=SCALES, dispatcher=dispatcher)
)
results.show_kernels(dispatcher, done)
results.show_counts(counts)
numbers = [[array[0] * scale] for array, scale in zip(stored, SCALES, strict=True)]
o, _ = reference.attention(done.problem, *numbers)
results.check("O", done.o[0], o, "fp8bf16")

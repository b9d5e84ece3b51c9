"""Causal masks at either corner and a sliding window: one masked kernel for all, with O as float64 has it.

Tiles of which no query sees a key are skipped: the counts show it.
"""

import numpy as np

from ckpm import fmha
from ckpm.attention import reference
from examples import kernels, results

random = np.random.default_rng(1)
q, k, v = (results.numbers(random, 1, length, 2, 128) for length in (100, 300, 300))
dispatcher = kernels.dispatcher("masks")
for mask, window in (("top_left", None), ("bottom_right", None), ("bottom_right", (63, 0))):
    done, counts = results.count(
        dispatcher.device,
        lambda mask=mask, window=window: fmha(q, k, v, mask=mask, window=window, dtype="bf16", dispatcher=dispatcher),
    )
    seen = reference.visible(done.problem, 100, 300)
    print(
        f"\n{mask}, window {window}: {seen.sum():,} of {seen.size:,} pairs are seen"
    )  # tiles that see none are skipped
    results.show_kernels(dispatcher, done)
    results.show_counts(counts)
    o, _ = reference.attention(done.problem, list(q), list(k), list(v))
    results.check("O", done.o[0], o)

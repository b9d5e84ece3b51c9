"""Grouped queries: eight query heads over 8, 2 and 1 heads of K and V, with the kernel of fwd.py."""

import numpy as np

from ckpm import fmha
from ckpm.attention import reference
from examples import kernels, results

random = np.random.default_rng(2)
dispatcher = kernels.dispatcher("fwd")
q = results.numbers(random, 1, 64, 8, 128)
for heads in (8, 2, 1):
    k, v = (results.numbers(random, 1, 96, heads, 128) for _ in "kv")
    done = fmha(q, k, v, dtype="bf16", dispatcher=dispatcher)
    print(f"\n8 heads of Q over {heads} of K and V")
    results.show_kernels(dispatcher, done)
    o, _ = reference.attention(done.problem, list(q), list(k), list(v))
    results.check("O", done.o[0], o)

"""Forward attention from arrays to arrays: the choice between two declared kernels, its reason, and its cost.

Shapes are [batch, token, head, dim].
"""

import numpy as np

from ckpm import fmha
from ckpm.attention import reference
from examples import kernels, results

random = np.random.default_rng(0)
q, k, v = (results.numbers(random, 2, length, 2, 128) for length in (100, 150, 150))
dispatcher = kernels.dispatcher("fwd", "masks")
done, counts = results.count(dispatcher.device, lambda: fmha(q, k, v, dtype="bf16", dispatcher=dispatcher))

results.show_kernels(dispatcher, done)
for other, reason in dispatcher.why(done.problem).refused.items():
    print(f"not     {other.name}: {reason}")
results.show_counts(counts)
o, _ = reference.attention(done.problem, list(q), list(k), list(v))
results.check("O", np.concatenate(done.o), o)

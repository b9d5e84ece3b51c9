"""A bias [head, query, key] added to the scores, with a causal mask. The query axis has one sequence after another."""

import numpy as np

from examples import kernels, paging, results

cache = paging.sequences(5)
bias = results.numbers(np.random.default_rng(5), paging.HEADS, sum(paging.QUERIES), max(paging.KEYS))
dispatcher = kernels.dispatcher("bias")
done = cache.call(dispatcher, bias=bias, mask="bottom_right", lse=True)
results.show_kernels(dispatcher, done)
cache.check(done, bias=[bias[:, :40, :70], bias[:, 40:, :25]])

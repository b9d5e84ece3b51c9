"""New keys and values after the old keys of each sequence in a KV cache: only the new rows change."""

import numpy as np

from ckpm import append
from examples import kernels, results

random = np.random.default_rng(10)
lengths = np.array([30, 17], np.int32)  # rows that each sequence has
q, knew, vnew = (results.numbers(random, 2, rows, 2, 128) for rows in (5, 8, 8))
k, v = (results.numbers(random, 2, 64, 2, 128) for _ in "kv")
dispatcher = kernels.dispatcher("append_kv")
done = append(q, knew, vnew, k, v, lengths, dispatcher=dispatcher, dtype="bf16")
print("kernel ", *done.ran.kernels)
for name, cache, after, new in (("K", k, done.k, knew), ("V", v, done.v, vnew)):
    expected = cache.copy()
    for sequence, length in enumerate(lengths):
        expected[sequence, length : length + 8] = new[sequence]
    changed = int((after != cache).any(axis=(2, 3)).sum())
    print(f"{name}       {changed} rows changed, {int((after != expected).sum())} numbers are not what they must be")
    if changed != 16 or (after != expected).any():
        raise SystemExit(1)

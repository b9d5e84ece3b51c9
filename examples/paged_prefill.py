"""Two sequences over a paged KV cache, from NumPy to NumPy.

In the clone: `nox -s build-gfx950`, then `python -m examples.paged_prefill`.
Elsewhere: `ckpm build`, then `CKPM_LIBRARIES=build python paged_prefill.py`.
"""

import numpy as np

from ckpm import Pages, fmha
from ckpm.attention import reference

random = np.random.default_rng(0)
q = random.uniform(-1, 1, (60, 4, 128))  # [token, head, dim]: sequences of 40 and 20 tokens
k, v = random.uniform(-1, 1, (2, 95, 1, 2, 128))  # [page, token, head, dim]: pages of one token
order = random.permutation(95).astype(np.int32)  # the first 70 pages are the first sequence's
pages = Pages(indices=order, indptr=np.array([0, 70, 95], np.int32))

done = fmha(q, k, v, dtype="bf16", cu_seqlens_q=np.array([0, 40, 60], np.int32), pages=pages, mask="bottom_right")

keys, values = ([tokens[order[:70], 0], tokens[order[70:], 0]] for tokens in (k, v))
o, _ = reference.attention(done.problem, [q[:40], q[40:]], keys, values)
print(done.ran.kernels[0])
print(f"O {done.o.shape} {done.o.dtype} {reference.agreement(done.o, o, 'bf16')}")

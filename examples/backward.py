"""The gradients of an attention call: three kernels in a chain, the same bits twice, each compared with float64.

Shapes are [batch, token, head, dim]. Four heads of Q share two of K and V, whose gradients are added up.
"""

from typing import Any

import numpy as np

from ckpm import fmha_backward
from ckpm.attention import reference
from ckpm.attention.backward.reference import gradients
from ckpm.matrix.problems.problem import Problem
from examples.kernels import dispatcher
from examples.results import numbers

random = np.random.default_rng(0)
shapes = ((2, 70, 4, 64), (2, 70, 4, 64), (2, 140, 2, 64), (2, 140, 2, 64))
do, q, k, v = (numbers(random, *shape) for shape in shapes)
problem = Problem(
    family="bwd_dq_dk_dv", batch=2, seqlen_q=70, seqlen_k=140, nhead_q=4, nhead_k=2, hdim_q=64, hdim_v=64,
    mask="bottom_right", window_right=0, deterministic=True,
)  # fmt: skip
o, lse = reference.attention(problem, list(q), list(k), list(v))  # or what fmha(..., lse=True) gave
forward = o.reshape(do.shape), lse.reshape(4, 2, 70).swapaxes(0, 1).astype(np.float32)

chain = dispatcher("backward_dot", "backward", "backward_convert")
options: dict[str, Any] = {"dtype": "bf16", "mask": "bottom_right", "deterministic": True, "dispatcher": chain}
done, again = (fmha_backward(do, q, k, v, *forward, **options) for _ in range(2))
for name in done.ran.kernels:
    print("kernel ", name)
want = gradients(done.problem, list(do), list(q), list(k), list(v))
for name in ("dq", "dk", "dv"):
    got = np.concatenate(getattr(done, name))
    agreement = reference.agreement(got, getattr(want, name), "bf16 gradient")
    print(f"{name:7} {agreement}; the same bits again: {(getattr(done, name) == getattr(again, name)).all()}")
    if not agreement.passed:
        raise SystemExit(1)

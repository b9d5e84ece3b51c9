"""Paged prefill by PyTorch, compared with float64: libraries below build/gfx950, or the wheel ckpm-libraries."""

import torch

import ckpm.torch

q = torch.randn(60, 8, 128, dtype=torch.bfloat16)  # [token, head, dim]: sequences of 40 and 20 tokens
k, v = torch.randn(2, 95, 2, 128, dtype=torch.bfloat16)  # pages of one token
pages = torch.randperm(95, dtype=torch.int32)  # the first 70 pages are the first sequence's
sums = torch.tensor([0, 40, 60], dtype=torch.int32), torch.tensor([0, 70, 95], dtype=torch.int32)
o, _ = ckpm.torch.paged_prefill(q, k, v, sums[0], pages, 40, 70, indptr=sums[1], causal=True)

for rows, queries, listed in zip(o.split([40, 20]), q.split([40, 20]), pages.split([70, 25]), strict=True):
    keys, values = (cache[listed].double().repeat_interleave(4, 1).transpose(0, 1) for cache in (k, v))
    seen = torch.ones(len(rows), len(listed), dtype=torch.bool).tril(len(listed) - len(rows))
    want = torch.nn.functional.scaled_dot_product_attention(queries.double().transpose(0, 1), keys, values, seen)
    torch.testing.assert_close(rows.double(), want.transpose(0, 1), rtol=2e-2, atol=1e-2)
print(f"O {list(o.shape)} of {o.dtype} agrees with float64")

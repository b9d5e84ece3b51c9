"""Split-KV, for few queries over many keys: a plan of two stages, whose workspaces the plan owns."""

import numpy as np

from ckpm import fmha
from ckpm.attention import reference
from examples import kernels, results

random = np.random.default_rng(3)
q = results.numbers(random, 1, 16, 2, 128)
k, v = (results.numbers(random, 1, 1000, 2, 128) for _ in "kv")
dispatcher = kernels.dispatcher("split_kv", "split_kv_combine")
for splits in (1, 4):
    done, counts = results.count(
        dispatcher.device,
        lambda splits=splits: fmha(q, k, v, splits=splits, lse=True, dtype="bf16", dispatcher=dispatcher),
    )
    sizes = dispatcher.plan(done.problem).workspaces
    print(f"\n{splits} splits, workspaces {', '.join(f'{name} {size:,} bytes' for name, size in sizes.items())}")
    results.show_kernels(dispatcher, done)
    if counts:
        print(f"counts  {counts['workgroups']} workgroups, {counts['instructions']:,} wave-instructions")
    o, lse = reference.attention(done.problem, list(q), list(k), list(v))
    results.check("O", done.o[0], o)
    results.check("LSE", done.lse[0], lse, "lse")

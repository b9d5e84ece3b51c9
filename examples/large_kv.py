"""A paged KV cache of over 4 GB: page numbers whose byte offsets don't fit 32 bits, read by 64-bit loads.

The kernel is that of sinks.py. Memory of the emulated device that nothing is written to costs none of the host's.
"""

import numpy as np

from ckpm import OnDevice, Pages, fmha
from ckpm.attention import reference
from ckpm.attention.launch.encodings import decode, encode
from examples import kernels, results

POOL = 5 * 2**30 // 256  # pages of one token of 256 bytes: 5 GB
random = np.random.default_rng(12)
q = results.numbers(random, 40, 2, 128)
k, v = (results.numbers(random, 70, 1, 128) for _ in "kv")
pages = np.sort(random.choice(POOL, 70, replace=False)).astype(np.int32)
pages[-1] = POOL - 1
dispatcher = kernels.dispatcher("sinks")
hip = dispatcher.device.hip


def on_device(array: np.ndarray, dtype: str) -> OnDevice:  # the device frees it when the process ends
    memory = hip.malloc(array.nbytes)
    hip.write(memory, array)
    return OnDevice(address=memory.address, shape=array.shape, dtype=dtype)


def pool(tokens: np.ndarray) -> OnDevice:
    memory = hip.malloc(POOL * 256)
    for page, token in zip(pages, encode(tokens, "bf16", kernels.ARCH), strict=True):
        hip.write(memory, token, int(page) * 256)
    return OnDevice(address=memory.address, shape=(POOL, 1, 1, 128), dtype="bf16")


table = Pages(
    indices=on_device(np.pad(pages, (0, 256)), "int32"),
    indptr=on_device(np.array([0, 70], np.int32), "int32"), longest=70,
)  # fmt: skip
memory = hip.malloc(40 * 2 * 128 * 2)
done = fmha(
    on_device(encode(q, "bf16", kernels.ARCH), "bf16"), pool(k), pool(v), pages=table, max_seqlen_q=40,
    cu_seqlens_q=on_device(np.array([0, 40], np.int32), "int32"), mask="bottom_right", window=(31, 0), sink_size=4,
    out=OnDevice(address=memory.address, shape=q.shape, dtype="bf16"), dispatcher=dispatcher,
)  # fmt: skip
hip.synchronize()
results.show_kernels(dispatcher, done)
beyond = int((pages.astype(np.int64) * 256 >= 2**32).sum())
print(f"pages   {POOL:,}, {POOL * 256 / 2**30:g} GB each of K and V; {beyond} of 70 that are used lie beyond 4 GB")
o, _ = reference.attention(done.problem, [q], [k], [v])
results.check("O", decode(hip.read(memory, np.uint16, q.shape), "bf16", kernels.ARCH), o)

"""A request of a kernel that is compiled on demand, with a tree and a compiler that need not be there."""

from __future__ import annotations

from pathlib import Path

from ckpm.attention.jit.orders import Place, order_for
from ckpm.kernels.code.toolchains import Toolchain
from ckpm.kernels.library.request import BuildRequest
from ckpm.kernels.upstream.tree import Tree
from ckpm.matrix.keys import Key

NAME = (
    "fmha_batch_prefill_d128_bf16_group_b64x128x64x128x64x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16_qr_async_vr_psskddv"
    "_nlogits_nbias_nmask_nlse_ndropout_nsquant"
)
DIALECT = "ck-2025-11"
TREE = Tree(name="aiter", root=Path("/tree"), dialect=DIALECT, identity="a tree", selector_takes_base=False)
COMPILER = Toolchain(
    name="stand-in",
    identity="a compiler 1.0",
    compiler=("cc",),
    search=(),
    flags=("-O3", "-DONE"),
    linker=("ld",),
    link_flags=("-shared",),
    environment={},
)


def make_request(arch: str = "gfx950") -> tuple[BuildRequest, tuple[Key, ...]]:
    order, keys = order_for(NAME, Place(upstream="aiter"), arch, DIALECT)
    return order.request(TREE, COMPILER, Path()), keys

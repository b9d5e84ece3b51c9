"""One real kernel of the default upstream, compiled for gfx942 and gfx950 into a library: the fixture ``built``."""

from __future__ import annotations

from pathlib import Path

from ckpm.base.settings import cache_folder
from ckpm.kernels.code.toolchains import detect
from ckpm.kernels.library import building
from ckpm.kernels.library.request import BuildRequest
from ckpm.kernels.upstream.tree import Tree
from ckpm.matrix.selection import Selection

NAME = (
    "fmha_batch_prefill_d128_bf16_group_b64x128x64x128x64x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16_qr_async_vr_psskddv"
    "_nlogits_nbias_nmask_nlse_ndropout_nsquant"
)


def build(tree: Tree, work: Path) -> None:
    """Build a library with that kernel below ``work``, from cached objects if there are any."""
    request = BuildRequest(
        selection=Selection(archs=("gfx942", "gfx950"), filters=(NAME,)),
        tree=tree,
        toolchain=detect("embedded", cache=cache_folder()),
        work=work,
        object_cache=cache_folder() / "objects",
    )
    tally = building.run(request, jobs=2)
    assert (tally.compiled + tally.retrieved, tally.failed) == (3, 0)

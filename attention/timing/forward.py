"""The model's check of bf16: CK's own V3 forward kernel against the forward kernel before it, on the same problem.

Both are of the packaged CK and read contiguous tensors: families fwd_v3 and fwd. Of the launch's longest workgroup as
many copies are modelled as occupancy allows, and what is compared is cycles a query.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ckpm.attention.launch.encodings import encode
from ckpm.attention.launch.fwd_launching import run_attention
from ckpm.attention.timing.building import built
from ckpm.attention.timing.checks import check, read_published
from ckpm.attention.timing.modelling import Asked, Modelled, open_library
from ckpm.attention.timing.record import Check, Timed
from ckpm.base.errors import InconclusiveError
from ckpm.kernels.abi import Status
from ckpm.matrix.problems.case import FAMILY_SUITE, SuiteCase

ARCH, UPSTREAM = "gfx950", "aiter"
SECTION = "forward"  # of published.yaml
_PLAIN = "key.dtype == 'bf16' and key.hdim_q == 128"
# family -> the kernels that a launch without padding takes
WHERE = {
    "fwd_v3": _PLAIN,
    "fwd": f"{_PLAIN} and key.mode == 'batch' and key.pipeline == 'qr_async' and key.pad == 'psddv' "
    "and key.bias == 'no' and not (key.logits or key.lse or key.dropout or key.skip)",
}
MASKS: Mapping[str, Mapping[str, Any]] = {
    "bf16-v3-full": {},
    "bf16-v3-causal": {"mask": "bottom_right", "window_right": 0},
}
_TOKENS = 4096


def checks(toolchain: str, work: Path) -> tuple[Check, ...]:
    """Times as fast as V2 that V3 is, without and with a mask, each beside what is published of it.

    Raises:
        InconclusiveError: a build or a launch failed.
        TableError: the table has no such rows.
    """
    places = {}
    for family, where in WHERE.items():
        selection = ("--upstream", UPSTREAM, "--family", family, "--tier", "full", "--where", where)
        library = built(selection, f"{UPSTREAM}-{family}", toolchain, work)
        places[family] = open_library(library, ARCH, family=family)
    made = []
    for name, field in read_published(SECTION).items():
        v3, v2 = (_model(place, name) for place in places.values())
        made.append(check(name, field, _of_a_query(v2) / _of_a_query(v3)))
    return tuple(made)


def _of_a_query(one: Timed) -> float:
    return one.cycles / (one.resident * one.tile_rows)


def _model(place: Modelled, name: str) -> Timed:
    """Raises InconclusiveError: the launch fails or is refused."""
    problem = SuiteCase(
        name=f"forward/{name}", suite=FAMILY_SUITE, tier="full", group=SECTION, mode="batch", dtype="bf16",
        seqlens_q=(_TOKENS,), seqlens_k=(_TOKENS,), nhead_q=1, nhead_k=1, **MASKS[name],
    )  # fmt: skip
    random = np.random.default_rng(0)
    shape = (_TOKENS, 1, 128)
    tensors = {one: encode(random.standard_normal(shape), "bf16", ARCH) for one in "qkv"}
    place.device.forget_recording()
    place.device.configure(record={"workgroup": None, "only": False})
    outcome = run_attention(place.device, place.library, problem, tensors)
    if outcome.launch.status != Status.OK or outcome.fault:
        raise InconclusiveError(
            f"{problem.name}: {outcome.fault.message if outcome.fault else outcome.launch.message}", kind="measure"
        )
    return place.replay(problem, outcome.launch.kernel or "", Asked(full_gpu=True))

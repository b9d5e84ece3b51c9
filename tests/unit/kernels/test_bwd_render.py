"""The backward families in C++ words, and their launches. tests/build/test_parity_fwd.py has dispatch and instances."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ckpm.attention.launch.arguments import backward_fields, workspaces, zeroed_workspaces
from ckpm.attention.launch.fwd_launching import pose
from ckpm.base.errors import ProblemError, UsageError
from ckpm.kernels.families.libraries import host, library_of, whole
from ckpm.kernels.families.render import dispatch_text
from ckpm.kernels.families.spellings import features
from ckpm.kernels.families.table import FAMILIES
from ckpm.matrix.dialects import dialect
from ckpm.matrix.keys import Key
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.selection import Selection, select
from ckpm.suites.backward_cases import laid_out

DIALECT = "ck-2025-11"
MEMBERS = ("bwd_dot_do_o", "bwd_dq_dk_dv", "bwd_convert_dq")
FEATURES = features(DIALECT)
PLAIN = "key.family != 'bwd_dq_dk_dv' or key.bias == 'no' and key.mask == 'no' and not key.dropout"


def keys_of(arch: str, *where: str, tier: str = "full") -> list[Key]:
    return select(dialect(DIALECT), Selection(archs=(arch,), families=MEMBERS, where=where, tier=tier))


KEYS = keys_of("gfx950", "key.dtype == 'bf16' and key.hdim_q == 64", PLAIN)
MAIN = [key for key in KEYS if key.family == "bwd_dq_dk_dv"]


def test_library_is_asked_for_by_its_main_family() -> None:
    assert {FAMILIES[name].library or name for name in MEMBERS} == {"bwd_dq_dk_dv"}
    assert whole(("bwd_dq_dk_dv",)) == MEMBERS
    assert whole(("bwd_dot_do_o",)) == ("bwd_dot_do_o",)
    assert library_of(MEMBERS, DIALECT) == "bwd_dq_dk_dv"
    with pytest.raises(UsageError, match="can't be rendered into one library"):
        library_of(("bwd_dot_do_o",), DIALECT)


def taken(text: str) -> list[tuple[str, str, str]]:
    """The traits of the three stages that each branch of a dispatch takes."""
    stages = r"(fmha_bwd_dot_do_o_traits_<.*?>), (fmha_bwd_dq_dk_dv_traits_<.*>), (void|fmha_bwd_convert_dq_.*>)"
    return re.findall(rf"return fmha_bwd_<{stages}, ck_tile::gfx950_t>\(s, a\);", text)


def test_kernel_whose_stages_are_not_selected_is_refused() -> None:
    alone = [key for key in KEYS if key.family != "bwd_convert_dq" or key.deterministic]
    with pytest.raises(UsageError, match="no kernels of bwd_dot_do_o and bwd_convert_dq that serve it are selected"):
        dispatch_text(alone, FEATURES)
    # with one of the two pads of rows there is one of the two branches
    padded = [key for key in KEYS if key.family == "bwd_dq_dk_dv" or key.pad.startswith("ps")]
    assert len(taken(dispatch_text(padded, FEATURES))) == len(MAIN)


def test_harness_has_three_stages() -> None:
    text = host("bwd_dq_dk_dv").harness(DIALECT, FEATURES)
    assert "selected[3] = {nullptr, nullptr, nullptr};" in text
    assert "stage == 0 || stage == 1 || stage == 2 ? selected[stage] : nullptr" in text
    assert "selected[0] = selected[1] = selected[2] = nullptr;" in text


def request(**changes: Any) -> SuiteCase:
    fields: dict[str, Any] = {
        "name": "kernels/x", "suite": "kernels", "tier": "full", "group": "x", "mode": "batch", "nhead_q": 4,
        "nhead_k": 2, "hdim_q": 64, "hdim_v": 32, "seqlens_q": (70, 70), "seqlens_k": (90, 90),
    }  # fmt: skip
    return pose(SuiteCase(**{**fields, **changes}), "bwd_dq_dk_dv", "gfx950")


def tensors(p: SuiteCase) -> dict[str, NDArray[Any]]:
    tokens, keys = sum(p.seqlens_q), sum(p.seqlens_k)
    shapes = {
        "q": (tokens, 4, 64),
        "k": (keys, 2, 64),
        "v": (keys, 2, 32),
        "o": (tokens, 4, 32),
        "dout": (tokens, 4, 32),
    }
    arrays: dict[str, NDArray[Any]] = {name: np.zeros(shape, np.uint16) for name, shape in shapes.items()}
    arrays["lse"] = np.arange(4 * tokens, dtype=np.float32).reshape(4, tokens)
    return arrays | {"bias": np.zeros((4, tokens, max(p.seqlens_k)), np.uint16)}


def test_gradients_of_k_and_v_are_of_each_head_of_q() -> None:
    values = backward_fields(request())
    assert (values["stride_k"], values["stride_dk"], values["stride_dv"]) == (2 * 64, 4 * 64, 4 * 32)
    assert (values["batch_stride_dk"], values["batch_stride_dq_acc"]) == (90 * 4 * 64, 70 * 4 * 64)
    assert (values["nhead_stride_lsed"], values["batch_stride_lsed"]) == (70, 4 * 70)
    assert "split_stride_dq_acc" not in values
    group = backward_fields(request(mode="group", seqlens_q=(3, 9), seqlens_k=(4, 2), deterministic=True))
    assert {value for name, value in group.items() if name.startswith("batch_stride")} == {0}
    assert (group["nhead_stride_lsed"], group["split_stride_dq_acc"]) == (12, 12 * 4 * 64)
    with pytest.raises(ProblemError, match="in batch mode all sequences have one length"):
        request(seqlens_k=(3, 4))


def test_arrays_that_kernels_add_to_begin_with_zeros() -> None:
    case = request(bias="bias", dbias=True, deterministic=True)
    arrays = laid_out(case, tensors(case))
    assert workspaces(case)["dq_acc"] == 6 * 140 * 4 * 64 * 4  # 90 keys are 6 times 16
    assert zeroed_workspaces(case) == ("dq_acc",)
    assert arrays["dbias"].shape == (2, 4, 70, 90)
    assert not arrays["dbias"].any()
    assert np.array_equal(arrays["lse"][1, 2], np.arange(2 * 140 + 70, 3 * 140))  # batch 1, head 2
    short = {**tensors(case), "dout": np.zeros((139, 4, 32), np.uint16)}
    with pytest.raises(ProblemError, match=r"dout is uint16\[139, 4, 32\], not uint16\[140, 4, 32\]"):
        laid_out(case, short)


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_every_smoke_kernel_has_launches_that_dispatch_it(arch: str) -> None:
    keys = keys_of(arch, tier="smoke")
    for key in keys:
        make_scenarios = FAMILIES[key.family].scenarios
        assert make_scenarios is not None
        wanted = make_scenarios(key, keys)
        assert wanted, key.name
        assert all(scenario.candidates for scenario in wanted), key.name
    axes = ("mode", "mask", "bias", "dbias", "dropout_impl", "deterministic", "dtype", "hdim_q")
    covered = {(name, getattr(key, name)) for key in keys if key.family == "bwd_dq_dk_dv" for name in axes}
    assert covered == {
        ("mode", "batch"), ("mode", "group"), ("mask", "no"), ("mask", "mask"), ("bias", "no"), ("bias", "bias"),
        ("bias", "alibi"), ("dbias", True), ("dbias", False), ("dropout_impl", "no"), ("dropout_impl", "wg16"),
        ("dropout_impl", "wg16_storerandval"), ("deterministic", True), ("deterministic", False), ("dtype", "fp16"),
        ("dtype", "bf16"), ("hdim_q", 64), ("hdim_q", 128),
    }  # fmt: skip

"""Imports of an unpacked package, the reference, and the checks of backends. No kernel runs."""

from __future__ import annotations

import contextlib
import importlib
import logging
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from ckpm.attention.callers.installing import SERVED
from ckpm.base.errors import UsageError
from tests.callers.backends import sglang_backend
from tests.callers.backends.cases import CALLERS, Case, cases
from tests.callers.backends.checking import check, served_calls
from tests.callers.backends.importing import Finder, install_finder
from tests.callers.backends.numbers import Numbers, shuffled_pages, sums
from tests.callers.missing import Missing
from tests.callers.reference import attend

KERNEL = "fmha_batch_prefill_d128_bf16_group"
CASE = Case(what="", heads=[4, 2], dims=[128, 128], lengths=[[9, 20], [5, 0]], calls={"call": f"{KERNEL}*"})


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An unpacked package whose __init__ fails, with one module that can be imported."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/__init__.py").write_text("raise RuntimeError")
    (tmp_path / "theirs/backend.py").write_text(
        "from theirs.other import Base, decorator, number, given\n"
        "@decorator(1)\nclass Backend(Base):\n    part: Base | None = None\n    known = given\n"
    )
    members = {"theirs.other": {"given": 7}}
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    install_finder(Finder(tmp_path, ("theirs",), ("theirs.backend", "theirs.gone"), members))
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "theirs"]:
        del sys.modules[name]


@pytest.mark.usefixtures("package")
def test_own_module_is_imported_among_stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # decorators run at import, before tests
    backend = importlib.import_module("theirs.backend")

    assert backend.Backend().known == 7
    assert isinstance(backend.number, Missing)
    assert backend.number.name == "theirs.other.number"


def test_sglang_variables_changed_by_a_case_are_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(
        get_schedule=SimpleNamespace, fast_mode=False, _use_mla_ps_kernel=True, _use_fp8_prefill_attn=True
    )
    monkeypatch.setattr(importlib, "import_module", lambda _: module)
    monkeypatch.setattr(
        sglang_backend, "run", lambda _, upstream: upstream.__dict__.update(fast_mode=True, _use_mla_ps_kernel=False)
    )

    sglang_backend.test_sglang("prefix", monkeypatch)

    assert module._use_mla_ps_kernel
    assert not module.fast_mode


@pytest.mark.usefixtures("package")
def test_package_without_an_own_module_is_refused() -> None:
    with pytest.raises(UsageError, match=r"gone\.py is not there: is .* the unpacked package\?"):
        importlib.import_module("theirs.gone")


def test_call_of_a_missing_name_skips_the_test() -> None:
    with pytest.raises(pytest.skip.Exception, match=r"refused: theirs\.decode is not served"):
        Missing("theirs").decode(1)


def test_reference_has_windows_sinks_and_caps() -> None:
    q, k, v = torch.randn(3, 6, 1, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sinks = torch.tensor([0.5], dtype=torch.float64)
    o, lse = attend(q[4:], k, v, True, left=2, sinks=sinks, cap=1.5, scale=0.5)
    for at, seen in enumerate((slice(2, 5), slice(3, 6))):
        scores = 1.5 * torch.tanh(k[seen, 0] @ q[4 + at, 0] * 0.5 / 1.5)
        total = scores.exp().sum() + sinks.exp()
        torch.testing.assert_close(o[at, 0], (scores.exp() @ v[seen, 0]) / total)
        torch.testing.assert_close(lse[at], total.log() * math.log2(math.e))


def test_log_lines_are_read_as_calls() -> None:
    with served_calls() as calls:
        logging.getLogger("ckpm.attention.call").debug("%s ran", "a kernel")
        logging.getLogger("ckpm.attention.callers.installing").debug("aiter.%s: this call was served", "call")
        logging.getLogger("ckpm.attention.callers.installing").warning("aiter.%s: ... aiter: %s", "other", "why")
    assert calls == [("call", "a kernel")]


def test_right_result_of_listed_kernel_passes() -> None:
    numbers = Numbers(CASE)
    check(CASE, numbers, numbers.exact_o(), [("call", KERNEL)], left=-1)


@pytest.mark.parametrize("calls", [[], [("other", KERNEL)], [("call", "fmha_fwd_d128_bf16")]])
def test_call_that_is_not_listed_fails(calls: list[tuple[str, str]]) -> None:
    numbers = Numbers(CASE)
    with pytest.raises(AssertionError):
        check(CASE, numbers, numbers.exact_o(), calls, left=-1)


def test_wrong_number_fails() -> None:
    numbers = Numbers(CASE)
    o = numbers.exact_o()
    o[3, 1, 4] += 0.1
    with pytest.raises(AssertionError, match=r"differs: largest error .* at \[3, 1, 4\]"):
        check(CASE, numbers, o, [("call", KERNEL)], left=-1)


def test_fp8_numbers_stand_for_scaled_ones() -> None:
    numbers = Numbers(Case(what="", heads=[2, 1], dims=[64, 64], lengths=[[3, 4]], kv="fp8"))
    k, v = numbers.wide(0)
    assert torch.equal(k.float(), numbers.k[0].float() * 0.5)
    assert torch.equal(v.float(), numbers.v[0].float() * 2.0)


@pytest.mark.parametrize(("error", "passes"), [(0.1, True), (0.12, False)])
def test_tolerance_of_fp8_weights_grows_with_v_scale(error: float, passes: bool) -> None:
    case = Case(what="", heads=[2, 1], dims=[64, 64], lengths=[[3, 4]], kv="fp8", calls={"call": "*"})
    numbers = Numbers(case)
    o = numbers.exact_o()
    o[1, 1, 5] += error  # of a tolerance of 0.055 times the scale 2
    with contextlib.nullcontext() if passes else pytest.raises(AssertionError, match="differs"):
        check(case, numbers, o, [("call", "fmha_fwd_d64_fp8bf16_group")], left=-1)


def test_pages_of_sequences_are_apart() -> None:
    pages = shuffled_pages([33, 16, 1], 16)
    assert [len(page_numbers) for page_numbers in pages] == [3, 1, 1]
    assert sorted(torch.cat(pages).tolist()) == [1, 2, 3, 4, 5]
    assert sums([3, 0, 4]).tolist() == [0, 3, 3, 7]


@pytest.mark.parametrize("caller", CALLERS)
def test_cases_have_names_of_served_functions(caller: str) -> None:
    assert all(case.calls.keys() <= {*SERVED} for case in cases(caller).values())

"""The guard without Triton: budgets, verdicts, what a candidate is known by, and the ratchet in both directions."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpm.base.errors import CheckFailedError, InputError, RecordError, SetupError, TableError, UsageError
from ckpm.decode.guard import command
from ckpm.decode.guard.candidates import Candidate, JudgedCandidate, candidate
from ckpm.decode.guard.compiling import judge
from ckpm.decode.guard.figures import Figures, KernelBudget, over_budget
from ckpm.decode.guard.ratchet import AcceptedKernel, changes, merge
from ckpm.decode.guard.table import read_guard_table
from tests.unit.shared import Run

LEAN = Figures(vgpr=120, agpr=0, sgpr=90, vgpr_spills=0, sgpr_spills=0, scratch_bytes=0, lds_bytes=2048, waves=4)
BUDGET = KernelBudget(vgpr=128, vgpr_spills=0, lds_bytes=4096, waves=2)
CANDIDATE = Candidate(
    kernel="softmax",
    arch="gfx950",
    signature={"x": "*bf16:16", "columns": "i32"},
    constexprs={"BLOCK": 64},
    options={"num_warps": 1, "num_stages": 2},
)


def make_judged(figures: Figures | None = LEAN, **other: Any) -> JudgedCandidate:
    reasons = over_budget(figures, BUDGET) if figures else ("doesn't compile",)
    return JudgedCandidate(candidate=dataclasses.replace(CANDIDATE, **other), figures=figures, reasons=reasons)


def make_accepted(*all_judged: JudgedCandidate) -> AcceptedKernel:
    return merge(None, all_judged, ["softmax"], compiler="triton 3.9.0", reason="first")


@pytest.mark.parametrize(
    ("metric", "value", "reason"),
    [
        ("vgpr", 129, "129 VGPRs, of which the budget allows 128"),
        ("vgpr_spills", 1, "1 spilled VGPRs, of which the budget allows 0"),
        ("lds_bytes", 4097, "4097 bytes of LDS, of which the budget allows 4096"),
        ("waves", 1, "1 waves on a SIMD, of which the budget requires 2"),
    ],
)
def test_figure_past_budget_is_reason(metric: str, value: int, reason: str) -> None:
    edge = dataclasses.replace(LEAN, vgpr=128, lds_bytes=4096, waves=2)
    assert over_budget(edge, BUDGET) == ()
    assert over_budget(dataclasses.replace(LEAN, **{metric: value}), BUDGET) == (reason,)


@pytest.mark.parametrize(
    ("metric", "value", "kind"),
    [
        *(("vgpr", 121, "worse"), ("vgpr", 119, "better"), ("vgpr_spills", 1, "worse"), ("waves", 3, "worse")),
        *(("waves", 5, "better"), ("sgpr", 91, "moved"), ("sgpr", 89, "moved"), ("lds_bytes", 1024, "better")),
    ],
)
def test_every_changed_figure_asks_for_acceptance(metric: str, value: int, kind: str) -> None:
    now = make_judged(dataclasses.replace(LEAN, **{metric: value}))
    (change,) = changes(make_accepted(make_judged()), [now], ["softmax"])
    assert change.kind == kind
    assert change.what == f"{metric} {getattr(LEAN, metric)}, now {value}"


@given(st.sampled_from([field.name for field in dataclasses.fields(Figures)]), st.integers(0, 600))
def test_ratchet_is_silent_for_equal_figures_alone(metric: str, value: int) -> None:
    now = dataclasses.replace(LEAN, **{metric: value})
    changed = changes(make_accepted(make_judged()), [make_judged(now)], ["softmax"])
    assert bool(changed) == (now != LEAN)
    assert changes(make_accepted(make_judged(now)), [make_judged(now)], ["softmax"]) == []


OTHER = make_judged(constexprs={"BLOCK": 128})


@pytest.mark.parametrize(
    ("before", "now", "kinds"),
    [
        ([make_judged()], [make_judged(), OTHER], ["new"]),
        ([make_judged(), OTHER], [make_judged()], ["gone"]),
        ([make_judged()], [make_judged(None)], ["worse"]),
        ([make_judged(None)], [make_judged()], ["better"]),
        ([make_judged(None)], [make_judged(None)], []),
    ],
)
def test_other_candidates_ask_for_acceptance(
    before: list[JudgedCandidate], now: list[JudgedCandidate], kinds: list[str]
) -> None:
    """A candidate is new or gone, or stops or begins to compile."""
    assert [change.kind for change in changes(make_accepted(*before), now, ["softmax"])] == kinds
    assert changes(make_accepted(*before), [], ["another"]) == []  # not asked about


@pytest.mark.parametrize(
    "other",
    [
        {"kernel": "softmin"},
        {"arch": "gfx942"},
        {"signature": {"x": "*fp16:16", "columns": "i32"}},
        {"constexprs": {"BLOCK": 32}},
        {"options": {"num_warps": 2, "num_stages": 2}},
    ],
)
def test_each_part_of_candidate_is_of_its_identity(other: dict[str, Any]) -> None:
    assert dataclasses.replace(CANDIDATE, **other).identity != CANDIDATE.identity


def test_order_of_constants_keeps_identity() -> None:
    first, second = ({"A": 1, "B": 2}, {"B": 2, "A": 1})
    assert dataclasses.replace(CANDIDATE, constexprs=first).identity == (
        dataclasses.replace(CANDIDATE, constexprs=second).identity
    )


def test_configuration_members_named_as_arguments_are_constants() -> None:
    configured = candidate("softmax", "gfx950", ("x", "BLOCK"), {"x": "*fp32"}, {}, {"BLOCK": 64, "waves_per_eu": 4})
    assert configured.constexprs == {"BLOCK": 64}
    assert configured.options == {"num_warps": 4, "num_stages": 2, "waves_per_eu": 4}


def test_accepted_figures_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "accepted.json"
    before = make_accepted(make_judged(), make_judged(None, constexprs={"BLOCK": 4096}))
    before.write(file)
    assert AcceptedKernel.read(file) == before
    file.write_text(file.read_text().replace('"vgpr": 120', '"vgpr": -1'))
    with pytest.raises(RecordError, match=r"candidates\[.\].figures.vgpr: must be a whole number >= 0"):
        AcceptedKernel.read(file)


def test_accepting_one_kernel_keeps_others() -> None:
    both = make_accepted(make_judged(), make_judged(kernel="softmin"))
    after = merge(both, [], ["softmax"], compiler="c", reason="r")
    assert [candidate.kernel for candidate, _ in after.entries.values()] == ["softmin"]


TABLE = """
accepted: accepted.json
kernels:
  softmax:
    file: softmax.py
    function: softmax_kernel
    archs: [gfx950]
    signature: {x: "*bf16:16", columns: i32}
    configurations: [{BLOCK: 64, num_warps: 1}]
    budget: {vgpr: 128, waves: 2}
"""


def table_file(tmp_path: Path, text: str = TABLE) -> Path:
    file = tmp_path / "guard.yaml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("waves: 2", "wave: 2", r"budget\.wave: unknown word 'wave'; known here: "),
        ("gfx950", "gfx1100", "archs: unknown 'gfx1100'"),
        ("function: softmax_kernel", "body: x", "unknown field"),
        ("num_warps: 1", "num_warps: [1]", "must be "),
        ("[gfx950]", "[]", "archs: is empty"),
        (TABLE[TABLE.index("kernels:") :], "kernels: {}", "kernels: is empty"),
    ],
)
def test_mistyped_table_is_refused(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    with pytest.raises(TableError, match=complaint):
        read_guard_table(table_file(tmp_path, TABLE.replace(old, new)))


def test_own_table_names_files_that_exist() -> None:
    table = read_guard_table(command.OWN)
    assert table.accepted.is_file()
    assert [kernel.file for kernel in table.kernels if not kernel.file.is_file()] == []


def test_kernel_fits_if_each_case_has_fitting_configuration(tmp_path: Path) -> None:
    (kernel,) = read_guard_table(table_file(tmp_path)).kernels
    fat = make_judged(dataclasses.replace(LEAN, vgpr=512, vgpr_spills=56, waves=1))
    assert command.verdicts(kernel, [[fat, make_judged()]]) == []
    (complaint,) = command.verdicts(kernel, [[make_judged()], [fat]])
    assert "56 spilled VGPRs, of which the budget allows 0" in complaint
    bad = dataclasses.replace(kernel, breaks_budget=True)
    assert command.verdicts(bad, [[fat]]) == []
    assert "correct the table" in command.verdicts(bad, [[fat, make_judged()]])[0]


def test_command_compares_accepts_and_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """Refuse chosen figures until they are accepted, and again when one improves."""
    figures = [LEAN]
    monkeypatch.setattr(command, "demand_triton", lambda: None)
    monkeypatch.setattr(command, "judged_kernel", lambda guarded, arch: [[make_judged(figures[0])]])
    table = read_guard_table(table_file(tmp_path))
    names = ["softmax"]
    with pytest.raises(CheckFailedError, match="no accepted figures yet"):
        command.compare(table, [make_judged()], names, None)
    make_accepted(make_judged()).write(table.accepted)
    assert run("guard", table.file)[0] == 0
    for change, complaint in (({"vgpr": 96}, "better: softmax gfx950"), ({"vgpr_spills": 2}, "2 spilled VGPRs")):
        figures[0] = dataclasses.replace(LEAN, **change)
        code, _, err = run("guard", table.file)
        assert (code, complaint in err) == (CheckFailedError.exit_code, True)


def test_without_triton_command_reports_how_to_install_it(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for line in (["guard", "streaming"], ["decode", "compare"]):
        code, _, err = run(*line)
        assert code == SetupError.exit_code
        assert "pip install --require-hashes -r requirements-triton.txt" in err


def test_unknown_kernel_and_reason_of_nothing_are_refused(run: Run) -> None:
    code, _, err = run("guard", "streeming")
    assert (code, "which has streaming, streaming-gfx942, streaming-wide" in err) == (2, True)
    assert run("guard", "streaming", "--accept", " ")[0] == 2


@pytest.mark.parametrize(
    ("arch", "complaint"),
    [
        ("gfx95O", "unknown arch 'gfx95O'"),
        ("gfx90a", "streaming has no kernel of gfx90a, only of gfx950"),
        ("gfx942", "streaming has no kernel of gfx942, only of gfx950"),
    ],
)
def test_arch_of_no_kernel_is_refused(monkeypatch: pytest.MonkeyPatch, run: Run, arch: str, complaint: str) -> None:
    """Refuse to pass with nothing checked."""
    monkeypatch.setattr(command, "demand_triton", lambda: None)
    monkeypatch.setattr(command, "function_of", lambda file, name: SimpleNamespace(arg_names=()))
    code, _, err = run("guard", "streaming", "--arch", arch)
    assert (code, complaint in err) == (UsageError.exit_code, True)


def test_kernel_that_does_not_compile_is_pruned_with_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise InputError("softmax: doesn't compile: no such type", kind="kernel-file")

    monkeypatch.setattr("ckpm.decode.guard.compiling.compile_candidate", refuse)
    outcome = judge(None, CANDIDATE, BUDGET)
    assert (outcome.fits, outcome.reasons) == (False, ("softmax: doesn't compile: no such type",))

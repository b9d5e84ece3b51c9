"""Steps are commands that exist, a failure of the disk ends the run, and other failures don't."""

from __future__ import annotations

import dataclasses
import fnmatch
from pathlib import Path

import pytest

from ckpm.base import rocm_places
from ckpm.base.errors import DeviceError, DiskFullError, UsageError
from ckpm.base.records import as_text
from ckpm.commands import parse
from ckpm.matrix.problems.performance import performance_problems
from ckpm.matrix.problems.tables import problems
from ckpm.reports.board.command import Runner, log_of
from ckpm.reports.board.page import BoardStep, answer, read_findings
from ckpm.reports.board.table import SMOKE, plan_steps, read_claims, read_steps
from ckpm.reports.verdicts import Gate
from tests.unit.reports.board_samples import write_parcel
from tests.unit.reports.report_samples import SLOWER
from tests.unit.shared import Run


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("tier", [SMOKE, "full"])
def test_plan_steps_gives_commands_in_safe_order(arch: str, tier: str) -> None:
    steps = plan_steps(read_steps(), arch, tier, rocm=True)
    for step in steps:
        assert parse(step.command).run is not None, step.shown
    names = [step.stage for step in steps]
    assert (names[0], names[-1], "v3-against-v2" in names) == ("board", "page-fault", arch == "gfx950")
    assert {"build-rocm", "batch-prefill-rocm"}.isdisjoint(
        step.stage for step in plan_steps(read_steps(), arch, tier, rocm=False)
    )


def test_claims_are_decided_by_what_their_steps_write() -> None:
    claims, stages = read_claims(), read_steps().stages
    assert len(claims) >= 10
    for name, claim in claims.items():
        outputs = stages[claim.step].outputs
        if claim.largest_error:
            assert "report" in outputs, name
            continue
        assert ("gate" if claim.verdict else "results") in outputs, name
        cases = performance_problems("nightly") if claim.verdict else problems(Path(outputs["results"]).stem, "full")
        assert fnmatch.filter([case.name for case in cases], claim.cases), name


def test_claim_of_v3_is_answered_by_its_long_problems(tmp_path: Path) -> None:
    """Short launches are slower than the host, and say nothing of V3."""
    findings = read_findings(write_parcel(tmp_path / "run").with_name("run"))
    claim = read_claims()["v3"]
    verdicts = {
        "tensor-q1k": "host-bound", "tensor-q8k": "unchanged", "page-q16k": "regressed", "tensor-q16k": "improved",
        "tensor-h40q37k": "improved",
    }  # fmt: skip
    rows = [
        dataclasses.replace(SLOWER, subject=f"performance/published_fp8.{name}", verdict=verdict)
        for name, verdict in verdicts.items()
    ]
    step = BoardStep(name="v3-against-v2", question="", command="", code=8)
    findings = dataclasses.replace(
        findings, run=dataclasses.replace(findings.run, steps=(step,)), gates={"v3-against-v2": Gate.of(rows, {})}
    )
    assert answer(claim, findings) == "as expected: improved: 2 improved"
    assert answer(claim, dataclasses.replace(findings, gates={})) == "open: a check failed"


def test_full_disk_ends_run_and_other_failures_do_not(tmp_path: Path) -> None:
    probe, _, build, *_ = plan_steps(read_steps(), "gfx950", SMOKE, rocm=False)
    runner = Runner(table=read_steps(), arch="gfx950", work=tmp_path, patience=1.0, probe=probe)
    (tmp_path / log_of(build)).parent.mkdir(parents=True)
    (tmp_path / log_of(build)).write_text("no space left\n")
    runner.note(build, 137)
    with pytest.raises(DiskFullError, match=r"Free some space; then run the same command: it goes on"):
        runner.note(build, DiskFullError.exit_code)
    assert runner.failed == {"build": 10}


@pytest.mark.parametrize(
    ("bus", "command"),
    [
        ("0000:c1:00.0", "amd-smi reset --gpureset --gpu 0000:c1:00.0. Or restart"),
        ("", "amd-smi reset --gpureset --gpu BDF, with a BDF of `amd-smi list`. Or restart"),
    ],
)
def test_lost_gpu_is_named_by_its_bus_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bus: str, command: str
) -> None:
    """Numbers of HIP count the visible GPUs, those of amd-smi all."""
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "0")
    probe, _, build, *_ = plan_steps(read_steps(), "gfx950", SMOKE, rocm=False)
    (tmp_path / log_of(build)).parent.mkdir(parents=True)
    (tmp_path / log_of(build)).write_text("lost\n")
    (tmp_path / probe.outputs["report"]).write_bytes(as_text({"gpu": "MI350", "bus": bus}))
    runner = Runner(table=read_steps(), arch="gfx950", work=tmp_path, patience=1.0, probe=probe, lost=True)
    with pytest.raises(DeviceError) as raised:
        runner.note(build, DeviceError.exit_code)
    assert command in str(raised.value)
    assert "rocm-smi" not in str(raised.value)


@pytest.mark.parametrize(
    ("archs", "variable", "message"),
    [
        (("gfx942", "gfx950"), "HIP_VISIBLE_DEVICES", "GPUs of gfx942, gfx950, and HIP_VISIBLE_DEVICES=1 hides some"),
        (("gfx942", "gfx950"), "ROCR_VISIBLE_DEVICES", "name the arch of yours with --arch"),
        (("gfx942", "gfx950"), "", "--patience is 0"),
        (("gfx950", "gfx950"), "HIP_VISIBLE_DEVICES", "--patience is 0"),
    ],
)
def test_arch_of_chosen_gpu_is_asked_for_on_a_mixed_machine(
    monkeypatch: pytest.MonkeyPatch, run: Run, archs: tuple[str, ...], variable: str, message: str
) -> None:
    """The first arch of the driver's list may be another GPU's. A patience of 0 is refused next, before any step."""
    for name in rocm_places.VISIBLE:
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, "1")
    monkeypatch.setattr(rocm_places, "gpu_archs", lambda: archs)
    result, _, err = run("first-gpu-run", "--patience", "0")
    assert (result, message in " ".join(err.split())) == (UsageError.exit_code, True), err

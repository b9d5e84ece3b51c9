"""Steps are commands that exist, a failure of the disk ends the run, and other failures don't."""

from __future__ import annotations

import fnmatch
from pathlib import Path

import pytest

from ckpm.base.errors import DiskFullError
from ckpm.commands import parse
from ckpm.matrix.problems.tables import problems
from ckpm.reports.board.command import Runner, log_of
from ckpm.reports.board.table import SMOKE, plan_steps, read_claims, read_steps


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
        if claim.verdict or claim.largest_error:
            assert ("gate" if claim.verdict else "report") in outputs, name
        else:
            suite = Path(outputs["results"]).stem
            names = [case.name for case in problems(suite, "full")]
            assert fnmatch.filter(names, claim.cases), name


def test_full_disk_ends_run_and_other_failures_do_not(tmp_path: Path) -> None:
    probe, _, build, *_ = plan_steps(read_steps(), "gfx950", SMOKE, rocm=False)
    runner = Runner(table=read_steps(), arch="gfx950", work=tmp_path, patience=1.0, probe=probe)
    (tmp_path / log_of(build)).parent.mkdir(parents=True)
    (tmp_path / log_of(build)).write_text("no space left\n")
    runner.note(build, 137)
    with pytest.raises(DiskFullError, match=r"Free some space; then run the same command: it goes on"):
        runner.note(build, DiskFullError.exit_code)
    assert runner.failed == {"build": 10}

"""Two runs at once in one checkout: each ends as if it were alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpm.commands import main
from ckpm.kernels.code.toolchains import Toolchain
from ckpm.kernels.library import building
from ckpm.kernels.library.request import LIBRARY, BuildRequest
from tests.unit.reports import report_samples

Make = Callable[..., BuildRequest]
FEW, MORE = ("key.logits", "key.lse"), ("key.logits",)


def run_at_once(*actions: Callable[[], object]) -> list[int]:
    """Run actions in processes at the same time. Return their exit codes: 0, or 1 for an exception."""
    children = []
    for action in actions:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                action()
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


@pytest.mark.parametrize("other", [FEW, MORE])
def test_two_builds_give_same_library(
    stub_toolchain: Callable[..., Toolchain], request_for: Make, copied_manifest: None, other: tuple[str, ...]
) -> None:
    first, second = (request_for(stub_toolchain(), where=where) for where in (FEW, other))

    def build(request: BuildRequest) -> None:
        building.run(request, jobs=2)

    assert run_at_once(lambda: build(first), lambda: build(second)) == [0, 0]
    built = first.work / first.folder
    assert (built / LIBRARY).read_text() == "library\n"
    assert (built / "manifest.json").read_bytes() == (built / "plan.json").read_bytes()
    for source in (built / "src").glob("*.hip"):
        assert (built / "obj" / f"{source.stem}.o").read_bytes() == source.read_bytes()


def test_two_reports_to_one_file_give_same_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    build, output = report_samples.write(tmp_path / "build"), tmp_path / "report.html"
    arguments = ["report", "--input", str(build), "--html", str(output)]

    def report() -> None:
        assert main(arguments) == 0

    assert run_at_once(report) == [0]
    alone = output.read_bytes()
    assert run_at_once(report, report, report) == [0, 0, 0]
    assert output.read_bytes() == alone
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".report")] == []

"""Each figure of `ckpm bench` is measured for real, one at a time: by itself in seconds, or at night."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ckpm.base.errors import InconclusiveError
from ckpm.base.paths import PROJECT
from ckpm.bench.emulated import _PLAIN
from ckpm.bench.figures import python
from ckpm.commands import main
from ckpm.kernels.library.request import LIBRARY
from ckpm_emulator import toolchain

ROWS = {"rendering": 2, "calls of the dispatcher": 2, "the timing model's score": 3}
ROWS_AT_NIGHT = {  # they run CK's codegen for all families, plan 6,000 kernels, or compile
    "enumeration": 4,
    "the build graph": 3,
    "merged units": 1,
    "runs on the emulator": 6,
    "a kernel compiled on demand": 2,
    "V3 against V2 on the timing model": 2,
    "a run without any cache": 2,
}
WITH_PYTORCH = "calls of PyTorch's operator"  # `nox -s tests -- torch`


@pytest.mark.parametrize(
    ("figure", "rows"),
    [*ROWS.items(), *(pytest.param(*row, marks=pytest.mark.nightly) for row in ROWS_AT_NIGHT.items())],
)
def test_bench_measures_figure(tmp_path: Path, figure: str, rows: int) -> None:
    command = [sys.executable, "-m", "ckpm", "bench", "--figure", figure, "--output", str(tmp_path / "bench.md")]
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    table = (tmp_path / "bench.md").read_text()
    assert table == ended.stdout[ended.stdout.index("# Bench") :].removesuffix("\n")
    assert len([line for line in table.splitlines() if line.startswith("| ")]) == rows + 2  # the head and its rule


def test_every_figure_of_bench_has_a_test(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--figure", "nothing"]) != 0
    names = capsys.readouterr().err.split("Known: ")[1].strip(" .\n").split(", ")
    assert {*names} == {*ROWS, *ROWS_AT_NIGHT, WITH_PYTORCH}


def test_plain_seconds_run_on_named_core(built: Path, tmp_path: Path) -> None:
    command, missing = ("-c", _PLAIN, str(built / LIBRARY)), tmp_path / "missing.so"
    assert float(python(*command, str(toolchain.library())).output) > 0
    with pytest.raises(InconclusiveError, match=rf"failed:[\s\S]*{missing}"):  # after the command that it shows
        python(*command, str(missing))

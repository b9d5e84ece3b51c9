"""The tables of the conformance page, and runs of CK's programs of googletest."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from ckpm.base.errors import UsageError
from conformance import gtests
from tests.programs.conformance import ck_gtests, tables
from tests.programs.conformance.__main__ import CK, GTESTS, HERE, PAGE, main, with_tables
from tests.programs.conformance.ck_examples import Verdict

PASSES = "[ RUN      ] A.a\n[       OK ] A.a (12 ms)\n"


def test_page_has_tables_of_stored_outcomes() -> None:
    page = PAGE.read_text()
    assert with_tables(page) == page, "python -m tests.programs.conformance table"


def test_stored_outcomes_have_accounts() -> None:
    for suite in tables.suites():
        plain = suite.archs.values()
        for outcomes in (*plain, *(ran.checked for ran in plain if ran.checked)):
            names = [name for names in (*outcomes.unsupported.values(), *outcomes.wrong.values()) for name in names]
            assert len(set(names)) == len(names) <= outcomes.tests
            assert all(why.strip() for why in (*outcomes.unsupported, *outcomes.wrong))


def test_ck_gtests_have_programs_and_outcomes() -> None:
    names = gtests.read_programs(HERE / f"{GTESTS}.yaml").programs
    assert len(set(names)) == len(names) > 0
    assert (tables.OUTCOMES / f"{GTESTS}.yaml").is_file()


def test_run_of_packaged_tree_starts_without_root_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The root contains googletest's sources, and no libraries for this machine."""
    started = list[tuple[Path, str, Path]]()

    def starter(file: Path, args: Namespace, root: Path) -> gtests.Start:
        started.append((file, args.arch, root))
        return lambda arguments: "A.\n  a\n" if "--gtest_list_tests" in arguments else PASSES

    monkeypatch.setattr(gtests, "starter", starter)
    monkeypatch.setattr(ck_gtests, "executable", lambda name, row, root: root / name / row["files"][0])
    arguments = ["ck-gtests", "--arch", "gfx950", "--root", "/r", "--only", "test_memory_copy"]
    assert main(arguments) == 0
    assert started == [(Path("/r/test_memory_copy/test/ck_tile/memory_copy/test_copy.cpp"), "gfx950", Path("/"))]


@pytest.mark.parametrize(("report", "code"), [("", 0), ("emulator: uninitialised_memory: 4 bytes\n", 1)])
def test_run_of_ck_fails_if_check_reports_right_result(monkeypatch: pytest.MonkeyPatch, report: str, code: int) -> None:
    def verdict(checks: str) -> Verdict:
        return Verdict(exit_code=0, output=f"{checks} {report}", valid=checks == "all")

    monkeypatch.setitem(CK, "ck-examples", lambda: {"copy": verdict})
    assert main(["ck-examples", "--arch", "gfx950", "--checks", "all", "--only", "copy"]) == code
    assert main(["ck-examples", "--arch", "gfx942", "--only", "copy"]) == UsageError.exit_code


def test_run_without_googletest_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["ck-gtests", "--arch", "gfx950", "--root", str(tmp_path), "--only", "test_memory_copy"]
    assert main(arguments) == UsageError.exit_code
    assert "install Debian's package googletest" in capsys.readouterr().err

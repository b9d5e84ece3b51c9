"""Cases of a suite, what the ledger makes of their results, and the files and exit codes of a run."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from junitparser import JUnitXml

from ckpm.attention.launch.counters import CLASSES, METRICS
from ckpm.base import results
from ckpm.base.errors import InconclusiveError, LibraryError, RefusedError, UnknownWordError
from ckpm.base.results import CaseFault, Results
from ckpm.commands import main as report
from ckpm.matrix.dialects import dialect
from ckpm.matrix.problems.case import SUITES
from ckpm.matrix.problems.ledger import Ledger, LedgerEntry
from ckpm.matrix.problems.serving import serves
from ckpm.matrix.problems.tables import problems
from ckpm.matrix.selection import Selection, select
from ckpm.suites import cli, suites
from ckpm.suites.checks import RESULTS
from ckpm.suites.suites import SANITIZER, Case, cases, judge, locate, manifest_keys, read_library, record_case
from tests.unit import manifests

KEYS = select(dialect("ck-2025-11"), Selection(archs=("gfx950",), tier="smoke"))
NAMES = [key.name for key in KEYS]
COUNT = len(problems("dispatch", "smoke"))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with a built library, by its manifest."""
    library_folder = tmp_path / "build" / "gfx950" / "aiter"
    manifests.write_library(library_folder, manifests.document({name: {} for name in NAMES}))
    return tmp_path


def ledger(*outcomes: str, glob: str = "dispatch/chosen.*", expires: str = "2099-01-01") -> Ledger:
    entry = LedgerEntry(
        name="known-one", location="ledger.yaml:3", problems=(glob,), upstreams=("aiter",), archs=("*",),
        outcomes=outcomes, reason="reads the wrong page", link="https://example.org/1",
        expires=datetime.date.fromisoformat(expires),
    )  # fmt: skip
    return Ledger(file=Path("ledger.yaml"), entries=(entry,))


LEDGER_FILE = """
entries:
  known-one:
    problems: [dispatch/chosen.plain-bf16]
    upstreams: [aiter]
    archs: ["*"]
    outcome: wrong
    reason: reads the wrong page
    expires: {expires}
"""


def make_case(name: str = "dispatch/chosen.plain-bf16") -> Case:
    return next(case for case in cases("dispatch", "smoke", "hip") if case.name == name)


# ---- cases


@pytest.mark.parametrize("suite", SUITES)
def test_every_suite_has_cases_with_time_limit(suite: str) -> None:
    suite_cases = cases(suite, "smoke", "emulator")
    assert [case.problem for case in suite_cases] == list(problems(suite, "smoke"))
    assert all(case.seconds >= 120 for case in suite_cases)


def test_sanitizer_runs_checks_in_three_orders_on_emulator_only() -> None:
    assert all(case.variants == ({},) for case in cases("sanitize", "smoke", "hip"))
    for case in cases("sanitize", "smoke", "emulator"):
        assert [options["wave_order"] for options in case.variants] == [0, 1, 2]
    for options in SANITIZER:
        assert all(options[name] for name in ("poison", "poison_memory", "late_loads", "lds_races", "uninitialised"))


def test_cases_are_chosen_by_name() -> None:
    with_suite = cases("dispatch", "smoke", "hip", "dispatch/tiles.*")
    assert [case.name for case in with_suite] == ["dispatch/tiles.few", "dispatch/tiles.many"]
    assert cases("dispatch", "smoke", "hip", "tiles.*") == with_suite
    with pytest.raises(InconclusiveError, match="no case of dispatch in tier smoke fits 'nothing'"):
        cases("dispatch", "smoke", "hip", "nothing")
    with pytest.raises(UnknownWordError):
        cases("dispath", "smoke", "hip")


# ---- libraries


def test_library_is_found_by_arch_and_upstream(work: Path) -> None:
    library = locate(work, "gfx950", "aiter")
    assert (library.manifest.upstream, library.manifest.archs) == ("aiter", ("gfx950",))
    keys = manifest_keys(library.manifest_file, NAMES)
    assert [key.name for key in keys] == NAMES
    assert keys == tuple(KEYS)
    for problem in problems("batch-prefill", "smoke"):
        assert [serves(key, problem) for key in keys] == [serves(key, problem) for key in KEYS]


def test_missing_library_is_reported_with_command_that_builds_it(work: Path) -> None:
    with pytest.raises(LibraryError, match="ckpm build --arch gfx942 --upstream aiter"):
        locate(work, "gfx942", "aiter")
    (work / "build/gfx950/aiter/manifest.json").unlink()
    with pytest.raises(LibraryError, match="ckpm build --arch gfx950 --upstream aiter"):
        locate(work, "gfx950", "aiter")
    with pytest.raises(LibraryError, match=r"libckpm\.so: no such file"):
        read_library(work / "libckpm.so", foreign=True)


def test_library_for_several_archs_serves_each(work: Path) -> None:
    (work / "build/gfx950").rename(work / "build/gfx942+gfx950")
    manifest = work / "build/gfx942+gfx950/aiter/manifest.json"
    manifest.write_text(manifest.read_text().replace('["gfx950"]', '["gfx942", "gfx950"]'))
    assert locate(work, "gfx942", "aiter").library == manifest.with_name("libckpm.so")


def test_wrong_or_foreign_manifest_raises(work: Path) -> None:
    manifest = work / "build/gfx950/aiter/manifest.json"
    with pytest.raises(LibraryError, match="lists other kernels than the library holds"):
        manifest_keys(manifest, NAMES[1:])
    manifest.write_text("{}")
    with pytest.raises(LibraryError, match=r"no manifest of a built library: .*manifest\.json: archs: is missing"):
        read_library(manifest.with_name("libckpm.so"), foreign=True)


# ---- verdicts


@pytest.mark.parametrize(
    ("result", "entry", "verdict", "outcome"),
    [
        ("passed", (), "passed", "passed"),
        ("wrong", (), "failed", "failed"),
        ("fault", (), "failed", "failed"),
        ("timeout", (), "failed", "failed"),
        ("unsupported", (), "unsupported", "skipped"),
        ("infrastructure", (), "infrastructure", "error"),
        ("wrong", ("wrong",), "known", "passed"),
        ("fault", ("wrong",), "failed", "failed"),
        ("fault", ("wrong", "fault"), "known", "passed"),
        ("passed", ("wrong",), "unexpected_pass", "failed"),
        ("infrastructure", ("wrong",), "infrastructure", "error"),
        ("unsupported", ("wrong",), "unsupported", "skipped"),
    ],
)
def test_ledger_is_strict(result: str, entry: tuple[str, ...], verdict: str, outcome: str) -> None:
    book = ledger(*entry) if entry else Ledger(file=Path("ledger.yaml"))
    reply = {"outcome": result, "message": "it", "elapsed": 2.0}
    assert judge(make_case(), reply, book, "aiter", "gfx950").verdict.kind == verdict
    row = record(reply, book)
    assert (row.outcome, row.seconds) == (outcome, 2.0)
    assert bool(row.message) == (outcome != "passed")
    assert row.reproduce == ("ckpm test" if outcome in ("failed", "error") else "")
    assert bool(row.ledger) == (bool(entry) and verdict in ("known", "unexpected_pass", "failed"))
    assert row.ledger is None or row.ledger.reason == "reads the wrong page"
    assert result in RESULTS


def record(reply: dict[str, Any], book: Ledger) -> results.CaseResult:
    judged = judge(make_case(), reply, book, "aiter", "gfx950")
    return record_case(judged, "dispatch", "gfx950", "aiter", "ckpm test", "fwd")


def test_record_has_fields_of_case() -> None:
    fault = {
        "kind": "memory", "message": "load outside", "access": "load", "kernel": "_Zk", "text": "global_load_dword",
        "pc": 16, "instruction": 3, "workgroup": [1, 0, 0], "wave": 2, "lane": None, "address": 4096, "bytes": 4,
        "detail": "", "error": 700, "nearest": None,
    }  # fmt: skip
    counted = {"kernels": {"_Zk": {**dict.fromkeys(METRICS, 0), "instructions": dict.fromkeys(CLASSES, 2)}}}
    reply = {"outcome": "fault", "kernel": "k", "lines": ["O agrees"], "tolerance_used": 0.25, "fault": fault}
    reply["counters"] = counted
    row = record(reply, ledger("fault"))
    assert (row.suite, row.arch, row.upstream, row.family) == ("dispatch", "gfx950", "aiter", "fwd")
    assert (row.kernel, row.tolerance_used, row.text) == ("k", 0.25, "O agrees")
    assert row.fault == CaseFault(
        kind="memory", message="load outside", access="load", instruction="global_load_dword", pc=16, address=4096,
        bytes=4, workgroup=(1, 0, 0), wave=2, lane=None, error=700,
    )  # fmt: skip
    assert (row.status, row.instructions) == ("known defect", 0)
    passed = record({"outcome": "passed", "counters": counted}, Ledger(file=Path("x"), entries=()))
    assert passed.instructions == 2 * len(CLASSES)
    infinite = {"outcome": "wrong", "tolerance_used": float("inf"), "lines": ["O differs, inf of its tolerance"]}
    row = record(infinite, ledger("fault"))
    assert (row.tolerance_used, row.text) == (None, "O differs, inf of its tolerance")  # JSON has no infinity


@pytest.mark.parametrize(
    ("variants", "kernel", "kind"),
    [
        (SANITIZER, "late", "known"),
        (SANITIZER, "sound", "failed"),
        (({},), "late", "failed"),  # on a GPU late loads cannot be observed
        (SANITIZER, None, "failed"),
    ],
)
def test_unwaited_load_excuses_its_kernel_where_loads_come_late(
    variants: tuple[dict[str, Any], ...], kernel: str | None, kind: str
) -> None:
    (entry,) = ledger("fault").entries
    book = Ledger(file=Path("ledger.yaml"), entries=(dataclasses.replace(entry, unwaited_loads=True),))
    case = dataclasses.replace(make_case(), variants=variants)
    reply = {"outcome": "fault", "kernel": kernel}
    assert judge(case, reply, book, "aiter", "gfx950", lambda: frozenset(("late",))).verdict.kind == kind


# ---- a run


class FakePool:
    """Answers with ``outcomes`` by name, else passed."""

    outcomes: dict[str, str] = {}  # noqa: RUF012
    commands: list[Sequence[str]] = []  # noqa: RUF012
    mean_shift: float | None = None

    def __init__(self, *, command: Sequence[str], size: int, environment: Any) -> None:
        FakePool.commands.append(command)

    def run(self, todo: Sequence[Case]) -> Iterator[tuple[Case, dict[str, Any]]]:
        for case in reversed(todo):
            outcome = self.outcomes.get(case.name, self.outcomes.get("*", "passed"))
            if outcome == "stop":
                raise KeyboardInterrupt
            reply = {"outcome": outcome, "message": "\x1bO differs", "lines": ["line"], "elapsed": 0.1}
            yield case, {**reply, "mean_shift": self.mean_shift}


@pytest.fixture
def run(work: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(cli, "WorkerPool", FakePool)
    monkeypatch.setenv("CI", "1")
    monkeypatch.delenv("CK_ROOT", raising=False)
    empty = work / "ledger.yaml"
    empty.write_text("entries: {}\n")
    FakePool.commands = []

    def call(*options: str, **outcomes: str) -> int:
        FakePool.outcomes = {name.replace("__", "*"): outcome for name, outcome in outcomes.items()}
        defaults = {"--suite": "dispatch", "--device": "emulator", "--work": str(work), "--ledger": str(empty)}
        left = [word for option, value in defaults.items() if option not in options for word in (option, value)]
        return report(["test", *left, *options])

    return call


def test_run_of_passing_cases_ends_with_zero(run: Any, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--output", str(work / "r.json")) == 0
    out = capsys.readouterr().out
    assert f"{COUNT} cases of dispatch on emulator gfx950, aiter" in out
    assert f"[{COUNT}/{COUNT}]" in out
    assert "to reproduce" not in out
    names = [row["name"] for row in json.loads((work / "r.json").read_text())["cases"]]
    assert names == [problem.name for problem in problems("dispatch", "smoke")]


def test_run_expects_rounding_that_manifest_names(run: Any, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakePool, "mean_shift", -1.0)
    assert run("--case", "chosen.*-bf16") == 8
    file = work / "build/gfx950/aiter/manifest.json"
    file.write_text(file.read_text().replace('"bf16": "compiler"', '"bf16": "truncate"'))
    assert run("--case", "chosen.*-bf16") == 0


def test_cases_without_kernel_are_left_out_and_counted(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [key.name for key in select(dialect("rocm-libraries-2026"), Selection(archs=("gfx950",), tier="smoke"))]
    own = manifests.document({name: {} for name in names}, upstream="ckpm", dialect="rocm-libraries-2026")
    manifests.write_library(tmp_path / "build" / "gfx950" / "ckpm", own)
    assert run("--suite", "sanitize", "--upstream", "ckpm", "--output", str(tmp_path / "r.json")) == 0
    out = capsys.readouterr().out
    assert "1 cases are left out, rocm-libraries-2026 has no kernel for them: mode batch: rule group_mode_only" in out
    v3 = sum(p.v3 == "on" for p in problems("sanitize"))
    assert f"{v3} cases are left out, rocm-libraries-2026 has no kernel for them: pipeline qr_async_trload_v3" in out
    # as of pages of 48 and of larger head dims
    split = sum(p.split_keys > 0 and p.page_size != 48 and p.hdim_q <= 256 for p in problems("sanitize"))
    assert f"{split} cases are left out, rocm-libraries-2026 has no kernel for them: pipeline qr_async_split" in out
    names = [row["name"] for row in json.loads((tmp_path / "r.json").read_text())["cases"]]
    left = [p for p in problems("sanitize") if p.mode == "group" and p.v3 != "on" and not p.split_keys]
    there = (p for p in left if p.page_size in (1, 16, 1024) and p.dtype != "bf16kvfp8" and p.hdim_v < 512)
    assert names == [p.name for p in there]
    assert (
        run("--suite", "sanitize", "--upstream", "ckpm", "--reproduce", "half.batch") == 0
    )  # whoever names it, asks it


def test_results_of_suites_archs_and_cases_run_again_lie_apart(run: Any, work: Path) -> None:
    library_folder = work / "build/gfx950/aiter"
    assert run() == 0
    assert run(__="stop") == 130
    for ending in ("json", "xml"):
        assert not (library_folder / f"dispatch.{ending}").exists()  # no report of an earlier run is left
    assert run() == 0
    assert len(list(JUnitXml.fromfile(str(library_folder / "dispatch.xml")))) == 1
    before = (library_folder / "dispatch.json").read_bytes()
    assert run("--reproduce", "tiles.few") == 0
    assert (library_folder / "reproduced.json").exists()
    assert (library_folder / "dispatch.json").read_bytes() == before


def test_sanitizer_s_case_is_run_again_by_its_arch_s_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CK_ROOT", "/my trees/ck")
    command = suites.reproduce_command("sanitize", "gfx942", "checkout", "emulator", "sanitize/plain.x")
    assert command == (
        "CK_ROOT='/my trees/ck' ckpm test --suite sanitize --arch gfx942 --upstream checkout --device emulator "
        "--reproduce sanitize/plain.x"
    )


def test_failures_are_reported_with_commands_and_reach_junit(
    run: Any, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "dispatch/tiles.few"
    assert run("--output", str(work / "r.json"), **{name: "wrong", "dispatch/tiles.many": "unsupported"}) == 8
    printed = capsys.readouterr()
    assert f"wrong {name}: \\x1bO differs" in printed.out
    command = f"ckpm test --suite dispatch --arch gfx950 --upstream aiter --device emulator --reproduce {name}"
    assert command in printed.out
    assert printed.err == f"error: 1 of {COUNT} cases failed\nmore about this: docs/reference/messages.md#cases\n"
    assert report(["report", "--junit", str(work / "r.json"), "--output", str(work / "r.xml")]) == 8
    xml = JUnitXml.fromfile(str(work / "r.xml"))
    (suite,) = list(xml)
    assert (suite.name, suite.tests, suite.failures, suite.skipped) == ("dispatch-gfx950-aiter", COUNT, 1, 1)
    failed = next(case for case in suite if case.name == name)
    assert failed.classname == "dispatch.tiles"
    assert command in failed.result[0].text
    assert "\x1b" not in (work / "r.xml").read_text()


def test_known_defects_pass_and_are_listed(run: Any, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "ledger.yaml").write_text(LEDGER_FILE.format(expires="2099-01-01"))
    assert run(**{"dispatch/chosen.plain-bf16": "wrong"}) == 0
    assert "1 cases: known-one (wrong, until 2099-01-01): reads the wrong page" in capsys.readouterr().out
    assert run() == 8
    assert "unexpected pass dispatch/chosen.plain-bf16: passes, but" in capsys.readouterr().out
    (work / "ledger.yaml").write_text(LEDGER_FILE.format(expires="2026-01-01"))
    assert run(**{"dispatch/chosen.plain-bf16": "wrong"}) == 8
    assert "known-one expired on 2026-01-01" in capsys.readouterr().err


def test_run_of_nothing_is_not_success(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(__="unsupported") == 9
    assert f"none of the {COUNT} cases could be run by this library" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--arch", "gfx942"), 6, "ckpm build --arch gfx942 --upstream aiter"),
        (("--upstream", "flash-attn"), 6, "no library of flash-attn for gfx950"),
        (("--case", "x*"), 9, "no case of dispatch in tier smoke fits 'x*'"),
        (("--reproduce", "x"), 3, "no problem 'dispatch/x'"),
        (("--jobs", "0"), 2, "--jobs must be at least 1"),
        (("--device", "tpu"), 2, "invalid choice: 'tpu'"),
        (("--library", "/nowhere/libckpm.so"), 6, "/nowhere/libckpm.so: no such file"),
    ],
)
def test_bad_options_end_at_once(
    run: Any, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], code: int, message: str
) -> None:
    assert run(*options) == code
    assert message in capsys.readouterr().err
    assert FakePool.commands == []


def test_library_of_another_arch_or_upstream_is_refused(
    run: Any, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = str(work / "build/gfx950/aiter/libckpm.so")
    assert run("--library", library, "--arch", "gfx942") == 6
    assert "is built for gfx950, not for gfx942" in capsys.readouterr().err
    assert run("--library", library, "--upstream", "flash-attn") == 6
    assert run("--library", library) == 0


def test_library_whose_bytes_are_not_its_manifest_s_is_refused(
    run: Any, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = work / "build/gfx950/aiter/libckpm.so"
    assert run("--output", str(work / "r.json")) == 0
    listed = hashlib.sha256(manifests.LIBRARY_BYTES).hexdigest()
    assert Results.read(work / "r.json").facts["library sha256"] == listed
    library.write_bytes(b"rebuilt by hand")
    rebuilt_digest = hashlib.sha256(b"rebuilt by hand").hexdigest()
    FakePool.commands = []
    assert run("--output", str(work / "r.json")) == 6
    message = capsys.readouterr().err
    assert f"its sha256 is {rebuilt_digest}, the manifest's {listed}" in message
    assert FakePool.commands == []
    assert run("--library", str(library), "--output", str(work / "r.json")) == 0
    assert "is not the library that its manifest lists" in capsys.readouterr().out
    facts = Results.read(work / "r.json").facts
    assert facts["library sha256"] == rebuilt_digest
    assert facts["not the manifest's library"] == f"sha256 {listed}"


def test_reproduce_runs_one_case_with_trace(
    run: Any, work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Case] = []
    original = FakePool.run

    def note_cases(self: FakePool, todo: Sequence[Case]) -> Iterator[tuple[Case, dict[str, Any]]]:
        seen.extend(todo)
        return original(self, todo)

    monkeypatch.setattr(FakePool, "run", note_cases)
    assert run("--reproduce", "dispatch/tiles.few", "--wave", "2") == 0
    (case,) = seen
    trace = work / "build/trace/dispatch-tiles.few.txt"
    assert case.variants == ({"trace": {"file": str(trace), "workgroup": 0, "wave": 2}},)
    assert trace.parent.is_dir()
    assert f"trace: {trace}" in capsys.readouterr().out
    assert '"threads": 0' in FakePool.commands[0][-1]


def test_worker_that_refuses_gives_its_exit_code(
    run: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(self: FakePool, todo: Sequence[Case]) -> Iterator[tuple[Case, dict[str, Any]]]:
        raise RefusedError("no GPU of arch gfx950", 7)

    monkeypatch.setattr(FakePool, "run", refuse)
    assert run() == 7
    assert capsys.readouterr().err == "error: no GPU of arch gfx950\n"

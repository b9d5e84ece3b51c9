"""Outcomes of googletest programs: read from their output, and stored."""

from __future__ import annotations

import dataclasses
import datetime
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import yaml

from ckpm_emulator.errors import UsageError
from ckpm_emulator.standalone import ALLOWED, CHECKS
from conformance import __main__ as command
from conformance import as_googletest, gtests, stored
from conformance.__main__ import HIPCUB, main
from conformance.stored import OUTCOMES, PASSED, UNSUPPORTED, WRONG, Ran, Suite, read

FAULT = (
    "emulator: hipLaunchKernel: hipErrorLaunchFailure: unknown fault: the emulator lacks v_sad_hi_u8: v_sad_hi_u8 v0\n"
)


def process(*tests: tuple[str, str, str]) -> str:
    """The output of a process. Each test has a name, its output and its end; the process ends after the end ""."""
    lines = ["Running main() from gtest_main.cc"]
    for name, inside, end in tests:
        lines += [f"[ RUN      ] {name}", *([inside] if inside else [])]
        if not end:
            return "\n".join(lines)
        where = ", where TypeParam = params<int, 2u>" if end == "  FAILED  " else ""
        lines.append(f"[{end}] {name}{where} (12 ms)")
    return "\n".join([*lines, "[  PASSED  ] 1 test."])


class Program:
    """Return the next text at each start, and keep the filters."""

    def __init__(self, *texts: str) -> None:
        self.texts, self.filters = list(texts), list[str]()

    def __call__(self, arguments: Sequence[str]) -> str:
        self.filters.append(arguments[-1].removeprefix("--gtest_filter="))
        return self.texts.pop(0)


OK, FAILED, SKIPPED = "       OK ", "  FAILED  ", "  SKIPPED "


def test_tests_are_named_by_suite_and_test() -> None:
    listed = "Running main()\nA/0.  # TypeParam = params<int>\n  One\n  Two  # GetParam() = 3\nB.\n  One\n"
    assert gtests.tests(Program(listed), "*") == ("A/0.One", "A/0.Two", "B.One")
    with pytest.raises(AssertionError, match="no tests are listed"):
        gtests.tests(Program("error while loading shared libraries"), "*")


def test_first_of_each_takes_first_list_of_types() -> None:
    names = ["Sort.A", "Id54/Sort/0.Keys", "Id54/Sort/0.Pairs", "Id61/Sort/0.Keys", "Id61/Sort/0.More", "A/Sort/0.Keys"]
    assert gtests.first_of_each(names) == (*names[:3], *names[4:])


def test_outcomes_of_passed_and_skipped_tests_take_one_process() -> None:
    program = Program(process(("A.a", "", OK), ("A.b", "", SKIPPED)))
    skipped = (UNSUPPORTED, "skipped by the test itself")
    assert gtests.outcomes(program, ["A.a", "A.b"]) == {"A.a": (PASSED, ""), "A.b": skipped}
    assert program.filters == ["A.a:A.b"]


def test_outcomes_run_tests_after_fault_again() -> None:
    """After a fault all calls fail, and a test that ignores errors prints OK."""
    first = process(("A.a", FAULT, OK), ("A.b", "x.cpp:3: Failure", FAILED))
    program = Program(first, process(("A.b", "", OK)))
    ended = gtests.outcomes(program, ["A.a", "A.b"])
    assert ended["A.a"][0] == UNSUPPORTED
    assert "v_sad_hi_u8" in ended["A.a"][1]
    assert ended["A.b"] == (PASSED, "")
    assert program.filters == ["A.a:A.b", "A.b"]


def test_outcomes_run_failed_test_alone_for_missing_functions() -> None:
    absent = "emulator: answered hipErrorNotSupported, for want of these functions: hipCreateTextureObject (1 call)"
    printed = process(("A.a", "HIP error: operation not supported line: 401", ""))
    program = Program(printed, f"{printed}\n{absent}", process(("A.b", "", OK)))
    ended = gtests.outcomes(program, ["A.a", "A.b"])
    assert ended == {"A.a": (UNSUPPORTED, "hipCreateTextureObject"), "A.b": (PASSED, "")}
    assert program.filters == ["A.a:A.b", "A.a", "A.b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (process(("A.a", "x.cpp:3: Failure", FAILED)), "x.cpp:3: Failure"),
        (process(("A.a", "", FAILED)), "ended with FAILED"),
        (process(("A.a", "", "")), "ended with no result"),
        (process(("A.a", "emulator: hipMemcpy: hipErrorIllegalAddress: beyond", OK)), "emulator: hipMemcpy"),
    ],
)
def test_outcomes_of_other_ends_are_wrong(text: str, message: str) -> None:
    outcome, detail = gtests.outcomes(Program(text), ["A.a"])["A.a"]
    assert outcome == WRONG
    assert message in detail


def test_outcomes_of_process_without_tests_raise() -> None:
    with pytest.raises(AssertionError, match=r"A\.a was not run"):
        gtests.outcomes(Program("Segmentation fault"), ["A.a"])


HEAD = {"suite": "s", "source": "of v1", "toolchain": "hipcc", "command": "run"}


def write(file: Path, archs: Mapping[str, object]) -> None:
    file.write_text(yaml.safe_dump({**HEAD, "archs": archs}))


def test_store_of_wrong_test_needs_account(tmp_path: Path) -> None:
    seen = {"a": (WRONG, "1 differs"), "b": (UNSUPPORTED, "s_x"), "c": (PASSED, "")}
    write(tmp_path / "s.yaml", {})
    with pytest.raises(UsageError, match="a is wrong"):
        stored.store(tmp_path / "s.yaml", "gfx942", seen)
    write(tmp_path / "s.yaml", {"gfx942": {"tests": 1, "wrong": {"rounds up": ["a"]}}, "gfx90a": {"tests": 2}})
    stored.store(tmp_path / "s.yaml", "gfx942", seen)
    accepted = Ran(tests=3, unsupported={"s_x": ["b"]}, wrong={"rounds up": ["a"]})
    assert read(tmp_path / "s.yaml") == Suite(**HEAD, archs={"gfx942": accepted, "gfx90a": Ran(tests=2)})


def test_store_of_run_under_checks_keeps_plain_outcomes(tmp_path: Path) -> None:
    file, plain = tmp_path / "s.yaml", {"tests": 3, "unsupported": {"s_x": ["b"]}}
    write(file, {"gfx942": {**plain, "checked": {"tests": 1, "wrong": {"theirs: a race": ["a"]}}}})
    seen = {"a": (WRONG, "race fault"), "b": (UNSUPPORTED, "s_x"), "c": (PASSED, "")}
    assert stored.compare(file, "gfx942", seen, accept=True, checked=True) == 0
    outcomes = read(file).archs["gfx942"]
    assert outcomes.checked
    assert {"heap", "stream_order"} <= {*outcomes.checked.checks.split()} <= {*CHECKS} - {*ALLOWED}
    age = datetime.datetime.now(datetime.UTC).date() - datetime.date.fromisoformat(outcomes.checked.day)
    assert age <= datetime.timedelta(days=1)
    assert dataclasses.replace(outcomes.checked, day="", checks="") == Ran(
        tests=3, unsupported={"s_x": ["b"]}, wrong={"theirs: a race": ["a"]}
    )
    assert (outcomes.tests, outcomes.unsupported, outcomes.wrong) == (3, {"s_x": ["b"]}, {})
    assert stored.compare(file, "gfx942", seen, accept=False, checked=True) == 0
    assert stored.compare(file, "gfx942", seen, accept=False) == 1
    assert stored.compare(file, "gfx942", {**seen, "c": (WRONG, "race fault")}, accept=False, checked=True) == 1


def test_memory_left_to_the_system_is_no_refusal() -> None:
    leak, fault = (
        "emulator: never freed: 2 allocations of 8 bytes together\n",
        "emulator: hipLaunchKernel: race fault\n",
    )
    assert gtests.judge("OK", leak) == (PASSED, "")
    assert gtests.judge("OK", leak + fault) == (WRONG, fault.strip())
    assert gtests.judge("OK", f"time: {fault}")[0] == WRONG, "the program's line had not ended"


def test_functions_run_as_tests_of_googletest(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise ValueError("1 is\nnot 2")

    functions = {"A.a": lambda: None, "A.b.c": fail}

    def start(arguments: Sequence[str]) -> str:
        as_googletest.run(functions, arguments)
        return capsys.readouterr().out

    assert gtests.tests(start, "*") == ("A.a", "A.b.c")
    assert gtests.outcomes(start, ["A.a", "A.b.c"]) == {"A.a": (PASSED, ""), "A.b.c": (WRONG, "Failure: 1 is not 2")}


@pytest.mark.parametrize(("checks", "started"), [("", ["small", "large"]), ("all", ["small"])])
def test_large_programs_are_left_out_under_checks(checks: str, started: Sequence[str]) -> None:
    chosen = gtests.Programs(suite="s", smoke="*", full="*", programs=["small", "large"], large=["large"])
    names = list[str]()

    def start(name: str) -> gtests.Start:
        names.append(name)
        return Program("A.\n  a\n", process(("A.a", "", OK)))

    gtests.run(Namespace(checks=checks, only=None, tier="smoke"), chosen, start)
    assert names == started


def test_no_outcome_under_checks_is_of_large_program() -> None:
    programs = gtests.read_programs(OUTCOMES.with_name(f"{HIPCUB}.yaml"))
    assert len({*programs.programs}) == len(programs.programs) > 0
    checked = read(OUTCOMES / f"{HIPCUB}.yaml").archs["gfx90a"].checked
    assert checked
    of_programs = {test.partition(":")[0] for test in checked.outcomes()}
    assert not of_programs & {*programs.large}


def test_run_is_compared_with_accepted_outcomes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed, good = "A.\n  a\n  b\n", process(("A.a", "", OK), ("A.b", "", SKIPPED))
    bad = process(("A.a", "x.cpp:3: Failure", FAILED))
    program = Program(
        listed, good, listed, good, listed, process(("A.a", "x.cpp:3: Failure", FAILED), ("A.b", "", OK)), bad
    )
    suite = gtests.Programs(suite="s", smoke="*", full="*", programs=["one"], folder="tests")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "one").touch()
    write(tmp_path / "hipcub.yaml", {})
    monkeypatch.setattr(command, "OUTCOMES", tmp_path)
    monkeypatch.setattr(gtests, "read_programs", lambda _: suite)
    monkeypatch.setattr(gtests, "starter", lambda *_: program)
    arguments = ["hipcub", "--arch", "gfx90a", "--root", str(tmp_path)]
    assert main([*arguments, "--accept"]) == 0
    assert main(arguments) == 0
    assert "as stored" in capsys.readouterr().out
    assert main(arguments) == 1
    printed = capsys.readouterr().out
    assert "one:A.a: wrong: x.cpp:3: Failure" in printed
    assert "one:A.b: passes now, stored as unsupported" in printed


@pytest.mark.parametrize(
    ("suite", "options", "message"),
    [
        ("hipcub", ["--accept", "--only", "test_hipcub_basic"], "leave --only and --tier away"),
        ("hipcub", ["--accept", "--tier", "full"], "leave --only and --tier away"),
        ("hipcub", ["--only", "no_such_program"], "is not there"),
        ("rocm-examples", ["--clone", "/elsewhere"], "a clone of them below --root"),
    ],
)
def test_run_with_wrong_options_is_refused(
    suite: str, options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = "/no-such-root" if suite == HIPCUB else str(tmp_path)
    assert main([suite, "--arch", "gfx950", "--root", root, *options]) == UsageError.exit_code
    assert message in capsys.readouterr().err


# ---- differences between a run and the stored outcomes

STORED = Ran(tests=4, unsupported={"v_tbuffer_x": ["images"]}, wrong={"rounds up": ["tan"]})
AS_STORED = {
    **{"add": (PASSED, ""), "scan": (PASSED, "")},
    **{"images": (UNSUPPORTED, "v_tbuffer_x"), "tan": (WRONG, "2 of 9 differ")},
}


def test_differences_of_equal_run_are_empty() -> None:
    assert stored.differences(STORED, AS_STORED) == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"add": (WRONG, "1 of 4 differ")}, "add: wrong: 1 of 4 differ"),
        ({"add": (UNSUPPORTED, "s_x")}, "add: unsupported: s_x; stored: passed"),
        ({"images": (UNSUPPORTED, "s_x")}, "images: unsupported: s_x; stored: v_tbuffer_x"),
        ({"images": (PASSED, "")}, "images: passes now, stored as unsupported: take it off the list"),
        ({"tan": (PASSED, "")}, "tan: passes now, stored as wrong: take it off the list"),
        ({"more": (PASSED, "")}, "5 tests ran, 4 are stored"),
    ],
)
def test_differences_list_changed_outcome(changed: dict[str, tuple[str, str]], message: str) -> None:
    assert stored.differences(STORED, AS_STORED | changed) == [message]


def test_differences_list_missing_test() -> None:
    seen = {name: ended for name, ended in AS_STORED.items() if name != "images"}
    assert stored.differences(STORED, seen) == [
        "3 tests ran, 4 are stored",
        "images: stored as unsupported, did not run",
    ]

"""What is read out of a googletest program's words, and what may be stored of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ckpm.base.errors import UsageError
from tests.programs.conformance import __main__ as command
from tests.programs.conformance import acceptance, ck_gtests, gtests
from tests.programs.conformance.__main__ import GTESTS, PAGE, Programs, main, programs
from tests.programs.conformance.stored import OUTCOMES, PASSED, UNSUPPORTED, WRONG, Ran, Suite, read, suites, table

FAULT = (
    "emulator: hipLaunchKernel: hipErrorLaunchFailure: unknown fault: the emulator lacks v_sad_hi_u8: v_sad_hi_u8 v0\n"
)


def process(*tests: tuple[str, str, str]) -> str:
    """The words of a process: each test with what stands in it, and its end ("": the process ends there)."""
    lines = ["Running main() from gtest_main.cc"]
    for name, inside, end in tests:
        lines += [f"[ RUN      ] {name}", *([inside] if inside else [])]
        if not end:
            return "\n".join(lines)
        where = ", where TypeParam = params<int, 2u>" if end == "  FAILED  " else ""
        lines.append(f"[{end}] {name}{where} (12 ms)")
    return "\n".join([*lines, "[  PASSED  ] 1 test."])


class Program:
    """Answers each start with the next of some texts, and keeps what it was started with."""

    def __init__(self, *texts: str) -> None:
        self.texts, self.filters = list(texts), list[str]()

    def __call__(self, arguments: Sequence[str]) -> str:
        self.filters.append(arguments[-1].removeprefix("--gtest_filter="))
        return self.texts.pop(0)


OK, FAILED, SKIPPED = "       OK ", "  FAILED  ", "  SKIPPED "


def test_names_are_those_of_suites_with_their_tests() -> None:
    listed = "Running main()\nA/0.  # TypeParam = params<int>\n  One\n  Two  # GetParam() = 3\nB.\n  One\n"
    assert gtests.tests(Program(listed), "*") == ("A/0.One", "A/0.Two", "B.One")
    with pytest.raises(AssertionError, match="no tests are listed"):
        gtests.tests(Program("error while loading shared libraries"), "*")


def test_of_several_lists_of_types_the_first_is_taken() -> None:
    names = ["Sort.A", "Id54/Sort/0.Keys", "Id54/Sort/0.Pairs", "Id61/Sort/0.Keys", "Id61/Sort/0.More", "A/Sort/0.Keys"]
    assert gtests.first_of_each(names) == (*names[:3], *names[4:])


def test_all_that_passed_take_one_process() -> None:
    program = Program(process(("A.a", "", OK), ("A.b", "", OK)))
    assert gtests.outcomes(program, ["A.a", "A.b"]) == {"A.a": (PASSED, ""), "A.b": (PASSED, "")}
    assert program.filters == ["A.a:A.b"]


def test_a_test_that_skips_itself_has_not_passed() -> None:
    ended = gtests.outcomes(Program(process(("A.a", "", SKIPPED))), ["A.a"])
    assert ended == {"A.a": (UNSUPPORTED, "skipped by the test itself")}


def test_what_follows_a_fault_is_run_again() -> None:
    """A launch that faulted fails the calls after it; a test that looks at no error says OK all the same."""
    first = process(("A.a", FAULT, OK), ("A.b", "x.cpp:3: Failure", FAILED))
    program = Program(first, process(("A.b", "", OK)))
    ended = gtests.outcomes(program, ["A.a", "A.b"])
    assert ended["A.a"][0] == UNSUPPORTED
    assert "v_sad_hi_u8" in ended["A.a"][1]
    assert ended["A.b"] == (PASSED, "")
    assert program.filters == ["A.a:A.b", "A.b"]


def test_a_failure_is_looked_at_alone_for_functions_that_are_missing() -> None:
    absent = "emulator: answered hipErrorNotSupported, for want of these functions: hipCreateTextureObject (1 call)"
    one = process(("A.a", "HIP error: operation not supported line: 401", ""))
    program = Program(one, f"{one}\n{absent}", process(("A.b", "", OK)))
    ended = gtests.outcomes(program, ["A.a", "A.b"])
    assert ended == {"A.a": (UNSUPPORTED, "hipCreateTextureObject"), "A.b": (PASSED, "")}
    assert program.filters == ["A.a:A.b", "A.a", "A.b"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (process(("A.a", "x.cpp:3: Failure", FAILED)), "x.cpp:3: Failure"),
        (process(("A.a", "", FAILED)), "ended with FAILED"),
        (process(("A.a", "", "")), "ended with no word"),
        (process(("A.a", "emulator: hipMemcpy: hipErrorIllegalAddress: beyond", OK)), "emulator: hipMemcpy"),
    ],
)
def test_every_other_end_is_wrong(text: str, said: str) -> None:
    outcome, detail = gtests.outcomes(Program(text), ["A.a"])["A.a"]
    assert outcome == WRONG
    assert said in detail


def test_a_process_that_runs_nothing_is_refused() -> None:
    with pytest.raises(AssertionError, match=r"A\.a was not run"):
        gtests.outcomes(Program("Segmentation fault"), ["A.a"])


def test_a_wrong_test_is_stored_only_with_an_account() -> None:
    seen = {"a": (WRONG, "1 differs"), "b": (UNSUPPORTED, "s_x"), "c": (PASSED, "")}
    with pytest.raises(UsageError, match="a is wrong"):
        acceptance.ran(seen, None)
    known = Ran(tests=3, unsupported={}, wrong={"rounds up": ["a"]})
    assert acceptance.ran(seen, known) == Ran(tests=3, unsupported={"s_x": ["b"]}, wrong={"rounds up": ["a"]})


def test_what_is_stored_is_read_again(tmp_path: Path) -> None:
    one = Ran(tests=9, unsupported={"s_x": ["b", "c"]}, wrong={})
    suite = Suite(name="s", source="of v1", toolchain="hipcc", command="run", archs={"gfx942": one})
    acceptance.store(acceptance.with_arch(suite, "gfx90a", one), tmp_path / "s.yaml")
    assert read(tmp_path / "s.yaml") == Suite(
        name="s", source="of v1", toolchain="hipcc", command="run", archs={"gfx942": one, "gfx90a": one}
    )


def test_the_table_replaces_what_stands_between_the_marks() -> None:
    page = f"above\n{acceptance.BEGIN}\n| old |\n{acceptance.END}\nbelow\n"
    changed = acceptance.with_table(page, suites())
    assert changed.splitlines() == ["above", acceptance.BEGIN, *table(suites()), acceptance.END, "below"]
    assert acceptance.with_table(changed, suites()) == changed
    with pytest.raises(UsageError, match="write both"):
        acceptance.with_table(page.replace(acceptance.END, ""), suites())


def test_page_has_the_table_of_stored_outcomes() -> None:
    page = PAGE.read_text()
    assert acceptance.with_table(page, suites()) == page, "python -m tests.programs.conformance table"


def test_nothing_stored_is_wrong_without_an_account() -> None:
    for suite in suites():
        for one in suite.archs.values():
            names = [name for names in (*one.unsupported.values(), *one.wrong.values()) for name in names]
            assert len(set(names)) == len(names) <= one.tests
            assert all(why.strip() for why in (*one.unsupported, *one.wrong))


@pytest.mark.parametrize("suite", GTESTS)
def test_a_suite_has_programs_and_a_place_for_its_outcomes(suite: str) -> None:
    found = programs(suite)
    assert len(set(found.names)) == len(found.names) > 0
    assert (OUTCOMES / f"{suite}.yaml").is_file()


def test_a_run_is_compared_with_what_was_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program's answers: its list of tests, then a process; three times."""
    listed, good = "A.\n  a\n  b\n", process(("A.a", "", OK), ("A.b", "", SKIPPED))
    bad = process(("A.a", "x.cpp:3: Failure", FAILED))
    program = Program(
        listed, good, listed, good, listed, process(("A.a", "x.cpp:3: Failure", FAILED), ("A.b", "", OK)), bad
    )
    suite = Programs(folder="tests", tiers={"smoke": "*"}, never={}, names=["one"], sources={})
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "one").touch()
    before = Suite(name="s", source="s", toolchain="t", command="c", archs={})
    acceptance.store(before, tmp_path / "hipcub.yaml")
    monkeypatch.setattr(command, "OUTCOMES", tmp_path)
    monkeypatch.setattr(command, "programs", lambda _: suite)
    monkeypatch.setattr(gtests, "starter", lambda *_: program)
    words = ["run", "hipcub", "--arch", "gfx90a", "--root", str(tmp_path)]
    assert main([*words, "--accept"]) == 0
    assert main(words) == 0
    assert "as stored" in capsys.readouterr().out
    assert main(words) == 1
    said = capsys.readouterr().out
    assert "one:A.a: wrong: x.cpp:3: Failure" in said
    assert "one:A.b: passes now, stored as unsupported" in said


def test_a_program_of_the_packaged_tree_is_compiled_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its root has googletest's sources, and no libraries that it would be started with."""
    started = list[tuple[Path, str, Path]]()

    def starter(file: Path, arch: str, root: Path) -> Program:
        started.append((file, arch, root))
        return Program("A.\n  a\n", process(("A.a", "", OK)))

    monkeypatch.setattr(gtests, "starter", starter)
    monkeypatch.setattr(ck_gtests, "executable", lambda name, row, root: root / name / row["files"][0])
    words = ["run", "ck-gtests", "--arch", "gfx950", "--root", "/r", "--only", "test_memory_copy"]
    assert main(words) == 0
    assert started == [(Path("/r/test_memory_copy/test/ck_tile/memory_copy/test_copy.cpp"), "gfx950", Path("/"))]


def test_without_googletest_nothing_is_compiled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "ck-gtests", "--arch", "gfx950", "--root", str(tmp_path), "--only", "test_memory_copy"]
    assert main(words) == UsageError.exit_code
    assert "install Debian's package googletest" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--accept", "--only", "test_hipcub_basic"], "leave --only and --tier away"),
        (["--accept", "--tier", "full"], "leave --only and --tier away"),
        (["--only", "no_such_program"], "is not there"),
    ],
)
def test_what_cannot_be_run_is_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "hipcub", "--arch", "gfx90a", "--root", "/no-such-root", *words]) == UsageError.exit_code
    assert said in capsys.readouterr().err

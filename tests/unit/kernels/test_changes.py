"""`ckpm plan --since REV`: what a change of each kind touches, and states that it can't compare.

Planted changes in every table, template and header, judged by rendering all kernels, are in tests/gate.
"""

from __future__ import annotations

import ast
import compileall
import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from ckpm.base.errors import SetupError, UsageError
from ckpm.commands import COMMANDS, main
from ckpm.kernels.changes.history import changed_paths, commit_of
from ckpm.kernels.changes.plan import ChangePlan, plan_since, to_json
from ckpm.kernels.changes.rules import Effect, read_rules, rules
from ckpm.kernels.families.libraries import host, libraries
from ckpm.matrix.dialects import upstreams
from ckpm.matrix.sessions import sessions
from tests.fuzz.commands import commands as fuzzed
from tests.unit.shared import git, replace_text, table_complaint

ROOT = Path(__file__).parents[3]
STATE = ("ckpm", "matrix", "kernels", "emulator/ckpm_emulator", "noxfile.py")  # of a manifest
SMALL_TABLE = "matrix/dialects/ck-2025-11/fwd_v3.yaml"  # four kernels are compared in a second, all in a minute
Edit = Callable[[str], str]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout that holds what this one's working tree holds, committed."""
    folder = tmp_path_factory.mktemp("plan") / "clone"
    folder.mkdir()
    listed = git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard", *STATE).split("\n")
    for name in (name for name in listed if name and (ROOT / name).exists()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    (folder / ".gitignore").write_text("__pycache__/\n")
    for package in ("ckpm", "emulator/ckpm_emulator"):
        compileall.compile_dir(folder / package, quiet=1)  # once, and not in each process that reads this state
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "now")
    return folder


@pytest.fixture
def make_plan(clone: Path) -> Callable[..., ChangePlan]:
    """``make_plan({"path": text before})``: a plan since a commit with these other texts; None is a missing file."""

    def make(before: dict[str, str | Edit | None]) -> ChangePlan:
        now = {path: (clone / path).read_text() if (clone / path).exists() else "new\n" for path in before}
        try:
            for path, text in before.items():
                file = clone / path
                file.parent.mkdir(parents=True, exist_ok=True)
                if text is None:
                    file.unlink(missing_ok=True)
                else:
                    file.write_text(text if isinstance(text, str) else text(now[path]))
            git(clone, "add", "-A")
            git(clone, "commit", "-qm", "before", "--allow-empty")
            for path, text in now.items():
                (clone / path).write_text(text)
            return plan_since(clone, "HEAD")
        finally:
            git(clone, "reset", "-q", "--hard", git(clone, "rev-list", "--max-parents=0", "HEAD").strip())
            git(clone, "clean", "-qfd")

    return make


EVERY = {"lint", "docs", "workflows"}  # the checks of every change


def test_plan_of_no_change_has_checks_of_every_change_only(make_plan: Callable[..., ChangePlan]) -> None:
    plan = make_plan({})
    assert (plan.changes, plan.kernels, plan.suites, plan.builds, plan.runs) == ((), (), {}, (), ())
    assert [*plan.commands] == ["nox -s lint", "nox -s docs", "nox -s workflows"]


@pytest.mark.parametrize(
    ("path", "checks", "suites", "gates"),
    [
        ("docs/page.md", {"unit", "pages"}, set(), False),
        ("ckpm/bench/emulated.py", {"unit", "compiled", "nightly"}, set(), False),
        ("emulator/notes.md", set(), set(), False),
        ("ckpm/reports/page/tables.py", {"unit", "fuzz", "report", "decode"}, set(), False),
        ("ckpm/suites/pool.py", {"unit", "nightly", "mutants", "image"}, {*sessions().suites}, False),
        (
            "emulator/core/isa/wave.cpp",
            {"unit", "nightly", "fuzz", "emulator", "mutants", "programs", "objects", "score"},
            {*sessions().suites},
            True,
        ),
        ("ckpm/reports/gates/static.py", {"unit", "fuzz", "report", "image"}, set(), True),
        (
            "ckpm/attention/launch/plan.py",
            {"unit", "nightly", "dispatcher", "torch", "examples"},
            {*sessions().suites},
            True,
        ),
        ("ckpm/kernels/parity/names.py", {"unit", "compiled", "nightly", "parity"}, set(), False),
    ],
)
def test_plan_of_room_without_kernels_builds_nothing(
    make_plan: Callable[..., ChangePlan], path: str, checks: set[str], suites: set[str], gates: bool
) -> None:
    plan = make_plan({path: "before\n"})
    assert (plan.kernels, plan.builds, plan.everything) == ((), (), ())
    assert (set(plan.checks), set(plan.suites), any(run.gate for run in plan.runs)) == (EVERY | checks, suites, gates)


def test_plan_of_file_without_rule_holds_everything(make_plan: Callable[..., ChangePlan]) -> None:
    plan = make_plan({"new_room/unheard_of.py": None})
    assert len(plan.everything) == 1
    assert all(change.names is None for change in plan.kernels)
    assert {change.family for change in plan.kernels} >= {
        family for members in libraries().values() for family in members
    }
    assert set(plan.checks) == set(rules().checks)
    assert plan.archs == ("gfx90a", "gfx942", "gfx950")


def test_plan_of_comment_holds_no_kernel(make_plan: Callable[..., ChangePlan]) -> None:
    plan = make_plan({SMALL_TABLE: lambda text: "# a comment\n" + text})
    assert (plan.kernels, plan.builds, plan.runs) == ((), (), ())
    assert "parity" in plan.checks


def test_plan_of_problem_holds_its_suite_only(make_plan: Callable[..., ChangePlan]) -> None:
    plan = make_plan({"matrix/problems/dispatch.yaml": lambda text: text.replace("tier: full", "tier: nightly", 1)})
    assert (set(plan.suites), plan.kernels, plan.builds) == ({"dispatch"}, (), ())


def test_plan_of_bad_old_table_holds_everything(make_plan: Callable[..., ChangePlan]) -> None:
    plan = make_plan({SMALL_TABLE: "archs: ["})
    assert "can't be compared" in plan.everything[0]
    assert all(change.names is None for change in plan.kernels)


def test_plan_without_manifest_holds_everything(
    make_plan: Callable[..., ChangePlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ckpm.kernels.changes.manifest._SCRIPT", Path("absent.py"))
    plan = make_plan({"matrix/selections.yaml": lambda text: text + "# before\n"})
    assert "can't open file" in plan.everything[0]


def test_changed_paths_has_deleted_renamed_and_untracked(clone: Path) -> None:
    try:
        git(clone, "mv", "ckpm/matrix/rules.py", "ckpm/matrix/other.py")
        (clone / "matrix" / "ledger.yaml").unlink()
        (clone / "added").write_text("")
        expected = ("added", "ckpm/matrix/other.py", "ckpm/matrix/rules.py", "matrix/ledger.yaml")
        assert changed_paths(clone, commit_of(clone, "HEAD")) == expected
    finally:
        git(clone, "reset", "-q", "--hard", "HEAD")
        git(clone, "clean", "-qfd")


@pytest.mark.parametrize("revision", ["no-such-branch", "--all", "HEAD:ckpm/matrix/rules.py", ""])
def test_commit_of_unknown_revision_is_refused(clone: Path, revision: str) -> None:
    with pytest.raises(UsageError, match="there is no such commit here"):
        commit_of(clone, revision)


def test_commit_of_refuses_folder_without_checkout(
    tmp_path: Path, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SetupError, match="not a git repository"):
        commit_of(tmp_path, "HEAD")
    with pytest.raises(SetupError, match="lies in the checkout"):
        commit_of(clone / "matrix", "HEAD")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="Install git"):
        commit_of(clone, "HEAD")


def test_commit_of_shallow_clone_names_remedy(tmp_path: Path, clone: Path) -> None:
    old = git(clone, "rev-parse", "HEAD").strip()
    git(clone, "commit", "-q", "--allow-empty", "-m", "later")
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{clone}", "shallow")
    git(clone, "reset", "-q", "--hard", old)
    with pytest.raises(SetupError, match="git fetch --unshallow"):
        commit_of(tmp_path / "shallow", old)


def test_plan_of_unknown_revision_ends_with_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    shallow = git(ROOT, "rev-parse", "--is-shallow-repository").strip() == "true"  # as a workflow's jobs check out
    code = main(["plan", "--since", "no-such-branch"])
    expected = SetupError if shallow else UsageError
    assert (code, "no-such-branch" in capsys.readouterr().err) == (expected.exit_code, True)


def test_command_prints_and_writes_the_plan(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ckpm.kernels.changes.plan.PROJECT", clone)
    assert main(["plan", "--since", "HEAD", "--output", str(tmp_path / "plan.json")]) == 0
    minutes = {check.command: check.minutes for check in rules().checks.values() if check.always}
    assert json.loads((tmp_path / "plan.json").read_text())["commands"] == minutes
    printed = capsys.readouterr().out
    assert all(f"{number:5d}  {command}\n" in printed for command, number in minutes.items())


def test_plan_as_json_has_nothing_but_the_document_on_stdout(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ckpm.kernels.changes.plan.PROJECT", clone)
    with (clone / SMALL_TABLE).open("a") as table:
        table.write("# a comment\n")
    assert main(["plan", "--since", "HEAD", "--json"]) == 0
    git(clone, "checkout", "-q", SMALL_TABLE)
    printed = capsys.readouterr()
    assert json.loads(printed.out)["kernels"] == []
    assert printed.err.count("are listed and compared") == 1


def test_to_json_has_every_reason(make_plan: Callable[..., ChangePlan], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "ckpm")
    document = json.loads(to_json(make_plan({SMALL_TABLE: lambda text: text + "# before\n"})))
    reason = "kernels and their selection, compared by text"
    assert document["changes"] == [{"path": SMALL_TABLE, "reason": reason, "everything": False}]
    assert document["kernels"] == []
    assert "are listed and compared" in caplog.text


def test_rules_have_libraries_that_can_be_rendered() -> None:
    assert {library.name for library in rules().libraries} == set(libraries())
    for library in rules().libraries:
        every = (*library.upstreams, *library.smoke_upstreams)
        assert {upstreams()[name].dialect for name in every} <= set(host(library.name).dialects())


def test_plan_of_our_headers_runs_smoke_tier_of_own_upstreams(make_plan: Callable[..., ChangePlan]) -> None:
    """Their smoke tier alone: 4,848 kernels are for releases and not for a change."""
    own = {"ckpm", "ckpm-extended", "ckpm-v3", "ckpm-serving"}
    plan = make_plan({"kernels/include_prefill/fmha_fwd.hpp": lambda text: f"{text}\n"})
    commands = {(run.upstream, run.arch): run.command for run in plan.runs if run.upstream in own}
    assert set(commands) == set(itertools.product(own, ("gfx942", "gfx950")))
    assert commands["ckpm", "gfx950"] == (
        "nox -s build-gfx950 test-batch-prefill test-large-kv test-page-fault test-dispatch sanitize-gfx950 perf-gate "
        "-- --arch gfx950 --upstream ckpm"
    )
    assert commands["ckpm-serving", "gfx942"].endswith("-- --arch gfx942 --upstream ckpm-serving --tier smoke")
    assert not own & {build.upstream for build in plan.builds}


def test_upstream_with_accepted_baselines_is_planned() -> None:
    accepted = {file.name.partition(".")[0] for file in (ROOT / "reports/baselines").glob("*/embedded/*.static.jsonl")}
    assert accepted == {
        name for library in rules().libraries for name in (*library.upstreams, *library.smoke_upstreams)
    }


def test_every_pattern_decides_for_a_file() -> None:
    files = git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard").split("\n")
    deciding = set()
    for file in files:
        fitting = ([pattern for pattern in patterns if fnmatchcase(file, pattern)] for patterns, _ in rules().effects)
        deciding.update(next(filter(None, fitting), []))
    assert [pattern for patterns, _ in rules().effects for pattern in patterns if pattern not in deciding] == []


def imports(file: Path) -> Iterator[Path]:
    """The files that a file imports, without the emulator's, which have a rule of their own."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                module = ROOT / name.replace(".", "/")
                yield from filter(Path.is_file, (module.with_suffix(".py"), module / "__init__.py"))


def follow_imports(*starts: str) -> list[str]:
    """The files of some patterns and all that they import."""
    seen: set[Path] = set()
    waiting = [file for start in starts for file in ROOT.glob(start)]
    while waiting:
        file = waiting.pop()
        if file not in seen:
            seen.add(file)
            waiting += imports(file)
    return sorted(str(file.relative_to(ROOT)) for file in seen)


@pytest.mark.parametrize(
    ("starts", "runs"),
    [
        (
            ("ckpm/kernels/library/request.py", "ckpm/kernels/families/render.py"),
            lambda effect: effect.families or effect.compare == "kernels",
        ),
        (("ckpm/suites/*.py",), lambda effect: effect.suites or effect.compare),
        # the check decode runs its gate
        (("ckpm/reports/gates/*.py",), lambda effect: effect.gates or effect.compare or "decode" in effect.checks),
    ],
    ids=["builds", "suites", "gates"],
)
def test_rules_repeat_what_imports_a_changed_module(starts: tuple[str, ...], runs: Callable[[Effect], object]) -> None:
    """A module that builds, suites or gates import may not be in a rule that repeats none of them."""
    effects = {file: rules().effect(file) for file in follow_imports(*starts)}
    assert len(effects) > 20
    assert [file for file, effect in effects.items() if not (effect.everything or runs(effect))] == []


def test_rules_run_torch_for_what_its_operators_call() -> None:
    files = [file for file in sessions().tests["torch"].files if file.endswith(".py")]
    files += [file for file in follow_imports("ckpm/attention/callers/torch.py") if file.startswith("ckpm/attention/")]
    effects = {file: rules().effect(file) for file in files}
    assert [file for file, effect in effects.items() if "torch" not in effect.checks] == []


def test_rules_list_nightly_for_what_its_tests_call() -> None:
    folders = (folder for name in ("compiled", "emulator") for folder in sessions().tests[name].files)
    files = [file for folder in folders for file in (ROOT / folder).rglob("test_*.py")]
    files = [file for file in files if "pytest.mark.nightly" in file.read_text()]
    called = {str(file.relative_to(ROOT)) for test in files for file in (test, *imports(test))}
    assert {"ckpm/bench/emulated.py", "ckpm/suites/backward_cases.py", "tests/build/parity.py"} <= called
    effects = {file: rules().effect(file) for file in called}
    lacking = [file for file, effect in effects.items() if not (effect.everything or "nightly" in effect.checks)]
    assert lacking == []


def test_rules_list_fuzz_for_commands_that_read_hostile_files() -> None:
    modules = {COMMANDS[command.name].options.partition(":")[0] for command in fuzzed() if command.name in COMMANDS}
    effects = {module: rules().effect(f"{module.replace('.', '/')}.py") for module in modules}
    lacking = [module for module, effect in effects.items() if not (effect.everything or "fuzz" in effect.checks)]
    assert lacking == []


def test_plan_of_everything_runs_each_group_of_tests() -> None:
    """A line has the name of a group or all its files. The mark is for tests that those lines leave out."""
    lines = [session.split() for check in rules().checks.values() for session in check.sessions]
    lacking = [
        name
        for name, group in sessions().tests.items()
        if not any(line[:3] == ["tests", "--", name] or (group.files and {*group.files} <= {*line}) for line in lines)
    ]
    assert lacking == []
    assert any(line[-2:] == ["-m", "nightly"] for line in lines)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "our own batch prefill, families: [batch_prefill]",
            "our own batch prefill, families: [prefil]",
            "known: fwd,",
        ),
        ("compare: suites", "compare: sweets", "unknown word 'sweets'"),
        ("checks: [unit, planted]", "checks: [units]", "unknown 'units'; known: lint"),
        ("kernels_per_shard: 96", "kernels_per_shard: 0", "must be a whole number >= 1"),
        ("{compiled}", "{complied}", "checks.compiled.sessions[0]: neither {arch} nor a group of tests in braces"),
    ],
)
def test_read_rules_refuses_mistake(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = (ROOT / "matrix/changes.yaml").read_text()
    assert message in table_complaint(tmp_path / "changes.yaml", replace_text(text, old, new), read_rules)

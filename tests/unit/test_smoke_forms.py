"""Every session and every command has a smoke form that something runs whole.

The form is a command of a page, which `nox -s tests -- docs` runs, or a command of the plan for a change of everything.
Other commands and sessions are listed here with a test that runs them to the end and compares their exit code with 0.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator

import nox.registry
import pytest

from ckpm.commands import COMMANDS
from ckpm.kernels.changes import plan
from ckpm.kernels.changes.rules import Effect, rules
from tests.docs.commands import noxfile
from tests.docs.pages import ROOT, blocks

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TESTS = {
    "compare": "tests/unit/reports/test_references.py::test_compare_prints_published_figures",
    "show": "tests/unit/matrix/test_matrix_cli.py::test_show_prints_fields_receipts_and_profiles",
    "validate": "tests/unit/matrix/test_validate.py::test_configuration_equal_to_kernels_is_valid",
    "first-gpu-run": "tests/board/test_first_gpu_run.py::test_rehearsal_answers_each_question",
    "gpu-results": "tests/unit/reports/board/test_parcel.py::test_gpu_results_shows_failures_beside_emulator_and_model",
    "sweep best": "tests/unit/attention/test_benchmark.py::test_shards_of_run_make_whole",
    "bench": "tests/build/test_bench.py::test_bench_measures_figure",
    "timing model": "tests/build/test_timing_model.py::test_matrix_work_follows_problem_and_file_repeats",
    "timing show": "tests/unit/reports/test_timing_report.py::test_command_shows_cycles_stalls_and_doubts",
    "timing tables": "tests/build/test_timing_tables.py::timings",
    "timing splits": "tests/build/test_timing_tables.py::test_splits_are_modelled_for_every_problem",
    "decode build": "tests/decode/test_gate.py::built",
    "decode compare": "tests/decode/test_guard.py::test_without_gpu_modelled_cycles_choose_among_what_fits",
    "images": "tests/unit/test_wheel.py::test_installed_ckpm_renders_images",
    "in-container": "tests/docker/test_emulator_image.py::test_two_runs_at_once_in_one_image",
    "verify-bundle": "tests/unit/reports/release/test_release_commands.py::test_from_clean_commit_to_verified_bundle",
    "workflows render": "tests/unit/workflows/test_render.py::test_committed_files_equal_their_templates",
    "workflows collect": "tests/unit/workflows/test_steps.py::test_collect_copies_every_result",
    "workflows head": "tests/unit/workflows/test_head.py::test_page_names_what_changed_between_two_states",
    "workflows ran-on": "tests/unit/workflows/test_steps.py::test_lane_proves_its_arch",
    "workflows planned": "tests/unit/workflows/test_planned.py::test_run_without_change_runs_nothing",
    "workflows run": "tests/unit/workflows/test_runner.py::test_command_runs_jobs_of_workflow_in_clones_of_head",
}
STEPS = {"timing board": "first-gpu-run"}  # commands that another one runs as its steps
SESSIONS = {  # sessions that no page can run, with the command that each passes its options to
    "docker": "images",
    "first-gpu-run": "first-gpu-run",
}
NOT_HERE = {"test-callers": "it needs clones of the callers"}


def commands_in(line: str) -> Iterator[list[str]]:
    """The commands of a line of shell, as arguments, without variables before them."""
    for part in re.split(r"&&|\|\||[|;&\n]|\$\(", line):
        arguments = shlex.split(part.replace("'", " ").replace('"', " "))
        while arguments and re.fullmatch(r"\w+=.*", arguments[0]):
            del arguments[0]
        yield arguments


@pytest.fixture(scope="module")
def commands() -> list[list[str]]:
    """Commands that are run: of pages, and of the plan for a change of everything."""
    page_blocks = (block for page in PAGES for block in blocks(page.name, page.read_text()))
    runnable = (block for block in page_blocks if block.kind == "console" and block.is_run)
    lines = [command.text for block in runnable for command in block.commands() if command.exit_code == 0]
    everything = plan._plan("", {"x": Effect(reason="all", everything=True)}, (), {}, rules())
    return [arguments for line in (*lines, *everything.commands) for arguments in commands_in(line)]


@pytest.fixture(scope="module")
def sessions(commands: list[list[str]]) -> set[str]:
    """The sessions that these commands run; `environment` comes before each."""
    of_nox = [arguments[2:] for arguments in commands if arguments[:2] == ["nox", "-s"]]
    return {"environment", *(name for arguments in of_nox for name in " ".join(arguments).partition(" -- ")[0].split())}


def test_every_session_has_a_smoke_form(sessions: set[str]) -> None:
    noxfile()
    assert {*nox.registry.get()} - sessions == {*SESSIONS, *NOT_HERE}
    assert {*SESSIONS.values()} <= {*TESTS}


def test_every_command_has_a_smoke_form(commands: list[list[str]], sessions: set[str]) -> None:
    begins = (["ckpm"], ["python", "-m", "ckpm"], ["nox", "-s", "ckpm", "--"])
    calls = [arguments[len(begin) :] for arguments in commands for begin in begins if arguments[: len(begin)] == begin]
    calls += [list(arguments) for session, arguments in noxfile().COMMANDS.items() if session in sessions]
    lacking = [
        name for name in COMMANDS if not any(arguments[: len(name.split())] == name.split() for arguments in calls)
    ]
    assert lacking == [name for name in COMMANDS if name in {*TESTS, *STEPS}]
    assert {*STEPS.values()} <= {*TESTS}


@pytest.mark.parametrize("name", TESTS)
def test_listed_test_runs_command_to_its_end(name: str) -> None:
    """The file or its conftest.py calls the command in one list; the function compares an exit code with 0."""
    file, _, function = TESTS[name].partition("::")
    text = (ROOT / file).read_text()
    arguments = r",\s*".join(f'"{word}"' for word in name.split())
    called = re.compile(rf'[(\[]\s*(?:sys\.executable,\s*"-m",\s*"ckpm",\s*)?{arguments}')
    files = (ROOT / file, (ROOT / file).with_name("conftest.py"))
    assert any(called.search(path.read_text()) for path in files if path.is_file())
    bodies = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == function]
    compared = [value for node in ast.walk(bodies[0]) if isinstance(node, ast.Compare) for value in ast.walk(node)]
    assert any(isinstance(value, ast.Constant) and value.value == 0 for value in compared)

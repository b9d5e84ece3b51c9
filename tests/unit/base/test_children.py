"""Children run nothing of the user's folder, and no variable of the user steers the tools among them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpm.base import processes
from ckpm.base.errors import UsageError
from ckpm.base.processes import git, own_environment, owned_command, python_command, tool_environment
from ckpm.docker.sessions import demand_sessions
from ckpm.kernels.library.request import manifest_command, scons_command
from ckpm.kernels.upstream.package_index import pip_settings
from ckpm.reports.release.run import execute
from ckpm.reports.release.stages import StageStep
from ckpm.suites.pool import Worker, worker_command
from ckpm_emulator import toolchain
from tests.unit import shared

ROOT = Path(__file__).parents[3]
NAMES = ("ckpm", "ckpm_emulator", "hatchling", "json", "nox", "pip", "SCons", "venv", "yaml", "ziglang")


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a module of each name that a child imports. The modules write a file ``ran``."""
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write('{name} ')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", ":")  # as of PYTHONPATH=$PYTHONPATH:/x: two empty entries, the current folder
    return tmp_path


def run_worker(folder: Path) -> None:
    with pytest.raises(Exception, match=r"before its first case|no setup"):
        Worker(worker_command({}), {}, 60)


def run_stage(folder: Path) -> None:
    step = StageStep(stage="s", arch="gfx950", command=("list", "--tier", "smoke"), outputs={}, needs=())
    assert execute(step, folder, 0) == 0


def run_scons(folder: Path) -> None:
    (folder / "plan.json").write_text("{}")
    owned = owned_command(manifest_command("."))
    for command in (scons_command("plan.json", 1, None), owned, python_command("-m", "venv")):
        subprocess.run(command, env=tool_environment(), capture_output=True, check=False)


@pytest.mark.parametrize(
    "start",
    [
        run_worker,
        run_stage,
        run_scons,
        lambda folder: pip_settings(),
        lambda folder: demand_sessions(["doctor"]),
        lambda folder: list(toolchain.compilers(folder / "cache"))[-1].run("--version"),
    ],
    ids=["worker", "stage", "build", "pip", "nox", "zig"],
)
def test_child_in_folder_with_planted_modules_runs_none(planted: Path, start: Callable[[Path], object]) -> None:
    start(planted)
    assert not (planted / "ran").exists()


def test_planted_module_runs_in_child_without_helper(planted: Path) -> None:
    command = [python_command()[0], "-m", "pip", "config", "list"]
    subprocess.run(command, capture_output=True, check=False)
    assert "pip" in (planted / "ran").read_text()


def test_children_are_started_by_the_helper() -> None:
    """A module that calls Python itself starts it in isolation, or runs a script in an empty folder."""
    own = {"ckpm/base/processes.py", "ckpm/kernels/upstream/codegen_runner.py", "ckpm/docker/context.py"}
    for file in (ROOT / "ckpm").rglob("*.py"):
        lines = [line for line in file.read_text().splitlines() if "sys.executable" in line]
        if str(file.relative_to(ROOT)) not in own:
            assert [line for line in lines if '"-I"' not in line and "bundler" not in line and '"-B"' not in line] == []


def test_foreign_variables_do_not_reach_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = ("SCONSFLAGS", "PIP_USER", "PIP_QUIET", "GIT_DIR", "CCC_OVERRIDE_OPTIONS", "ZIG_LIB_DIR", "HATCH_BUILD")
    kept = ("PIP_INDEX_URL", "HTTPS_PROXY", "CKPM_CACHE", "ROCM_PATH", "GIT_CONFIG_COUNT")
    for name in (*foreign, *kept):
        monkeypatch.setenv(name, "x")
    assert {*foreign, *kept} & tool_environment().keys() == {*kept}
    assert own_environment()["SCONSFLAGS"] == "x"


def test_git_of_a_hook_answers_about_the_named_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("hooked", "named"):
        (tmp_path / name).mkdir()
        shared.git(tmp_path / name, "init", "--quiet")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "hooked/.git"))
    top = git(tmp_path / "named", "rev-parse", "--absolute-git-dir")
    assert top is not None
    assert Path(top.decode().strip()) == (tmp_path / "named/.git").resolve()


def test_clone_with_colon_in_its_path_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "IMPORTS", Path("/a:b"))
    with pytest.raises(UsageError, match=r"/a:b: a folder with ':' in its name .* Move the clone"):
        tool_environment()

"""Many machines without Dask: options, missing packages, a site's table, identities, the guard.

Tests with Dask are in tests/cluster.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ckpm import commands as cli
from ckpm.base.errors import InconclusiveError, SetupError, TableError, UsageError
from ckpm.base.paths import PROJECT, program_digest
from ckpm.cluster import guard
from ckpm.cluster.command import failure
from ckpm.cluster.identity import Identity, project
from ckpm.cluster.site import read_site
from tests.unit.shared import Run, copy_rooms


@pytest.fixture
def without_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    missing = ("distributed", "dask_jobqueue")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name in missing else find_spec(name, *more)
    )


@pytest.mark.parametrize(
    ("options", "packages"),
    [(["--scheduler", "tcp://x:1"], "distributed."), (["--cluster", "slurm"], "distributed, dask_jobqueue.")],
)
def test_missing_packages_are_reported_with_their_command(
    without_dask: None, options: list[str], packages: str, run: Run
) -> None:
    code, _, printed = run("build", *options)
    assert (code, packages in printed) == (SetupError.exit_code, True)
    assert "pip install --require-hashes -r requirements-cluster.txt" in printed


def test_requirements_have_packages() -> None:
    text = (PROJECT / "requirements-cluster.txt").read_text()
    assert "\ndistributed==" in text
    assert "\ndask-jobqueue==" in text
    assert "--index-url" not in text
    assert "--find-links" not in text
    packages = [line for line in text.splitlines() if "==" in line and not line.startswith((" ", "#"))]
    assert text.count("--hash=sha256:") >= len(packages) > 10


def test_both_requirements_pin_same_versions() -> None:
    def pins(name: str) -> dict[str, str]:
        lines = (PROJECT / name).read_text().splitlines()
        return dict(line.split(" ")[0].split("==") for line in lines if "==" in line and line[0].isalnum())

    here, there = pins("requirements.txt"), pins("requirements-cluster.txt")
    both = here.keys() & there.keys()
    assert {"pyyaml", "msgpack", "jinja2"} <= both
    assert {name: here[name] for name in both} == {name: there[name] for name in both}
    assert not {"dask", "distributed", "tornado"} & here.keys(), "the laptop's environment has grown"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--scheduler", "tcp://x:1", "--cluster", "slurm"], "--scheduler and --cluster exclude each other"),
        (["--scheduler", "tcp://x:1", "--workers", "2"], "--workers goes with --cluster"),
        (["--cluster-file", "site.yaml"], "--cluster-file goes with --cluster"),
        (["--cluster", "slurm", "--workers", "0"], "--workers must be at least 1"),
        (["--scheduler", "tcp://x:1", "--jobs", "2"], "--jobs"),
        (["--scheduler", ""], "--scheduler is empty"),
        (["--cluster", "slurm", "--partition", ""], "--partition is empty"),
        (["--cluster", "slurm", "--walltime", ""], "--walltime is empty"),
    ],
)
def test_contradicting_options_fail(options: list[str], message: str, run: Run) -> None:
    code, _, err = run("build", *options)
    assert (code, message in err) == (UsageError.exit_code, True)


def test_reproduce_is_refused_on_workers() -> None:
    options = ["test", "--suite", "dispatch", "--reproduce", "x", "--scheduler", "tcp://x:1"]
    assert cli.main(options) == UsageError.exit_code


def test_site_file_and_options_replace_defaults(tmp_path: Path) -> None:
    file = tmp_path / "site.yaml"
    file.write_text("{cores: 7, partition: slow, prologue: [module load rocm]}\n")
    site = read_site(file, None, "00:30:00")
    assert (site.cores, site.partition, site.walltime, site.memory) == (7, "slow", "00:30:00", "8GB")
    assert site.prologue == ("module load rocm",)
    assert read_site(file, "fast", None).partition == "fast"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{core: 7}", "core: unknown field"),
        ("{cores: 0}", "cores: must be a whole number >= 1"),
        ("{gpus: -1}", "gpus: "),
    ],
)
def test_mistake_in_site_file_is_reported(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "site.yaml").write_text(text)
    with pytest.raises(TableError, match=message):
        read_site(tmp_path / "site.yaml", None, None)


def test_project_identity_changes_with_line(tmp_path: Path) -> None:
    copy_rooms(tmp_path)
    copy = project(tmp_path)
    assert copy.text == project().text
    project.cache_clear()
    program_digest.cache_clear()
    with (tmp_path / "kernels/templates/unit.hip.j2").open("a") as file:
        file.write("\n")
    assert project(tmp_path).text != copy.text


def test_differences_name_both_sides() -> None:
    client = Identity(text="aa", commit="1111", toolchain="clang 21", upstream="aiter")
    assert client.differences(client) == []
    worker = dataclasses.replace(client, commit="2222", toolchain="clang 22")
    assert client.differences(worker) == [
        "commit: the client's 1111, the worker's 2222",
        "toolchain: the client's clang 21, the worker's clang 22",
    ]
    assert client.differences(dataclasses.replace(client, commit="")) == [], "without git the text decides"
    assert client.differences(dataclasses.replace(client, commit="", text="bb")) == [
        "text: the client's aa, the worker's bb"
    ]


def test_refused_step_becomes_failure_of_worker() -> None:
    error = failure([{"refused": InconclusiveError.exit_code, "output": "unit_1: 4 workers died"}] * 2)
    assert type(error) is InconclusiveError
    assert str(error) == "unit_1: 4 workers died"


def start_guarded(*command: str) -> tuple[subprocess.Popen[str], int]:
    """Start a command under its guard; return the end of the pipe that keeps both alive, too."""
    read_end, write_end = os.pipe()
    arguments = [sys.executable, "-I", "-S", guard.__file__, str(read_end), *command]
    process = subprocess.Popen(arguments, pass_fds=[read_end], stdout=subprocess.PIPE, text=True)
    os.close(read_end)
    return process, write_end


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -SEGV $$", -signal.SIGSEGV)])
def test_guard_ends_like_its_command(script: str, code: int) -> None:
    process, write_end = start_guarded("sh", "-c", script)
    assert process.wait(60) == code
    os.close(write_end)


def test_guard_reports_missing_command() -> None:
    process, write_end = start_guarded("/nowhere/compiler")
    assert process.communicate(timeout=60)[0].startswith("/nowhere/compiler can't be started")
    assert process.returncode == 127
    os.close(write_end)


def test_guard_ends_command_and_children_with_owner() -> None:
    process, write_end = start_guarded("sh", "-c", "sleep 1000 & echo started; wait")
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    os.close(write_end)
    assert process.stdout.read() == "", "the pipe closes when the last process has ended"
    assert process.wait(60) == -signal.SIGKILL

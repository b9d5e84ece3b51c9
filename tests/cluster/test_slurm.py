"""Workers are jobs of a real Slurm on this machine, and end with the command."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpm.base.errors import ServiceError
from ckpm.cluster.connection import connect
from ckpm.cluster.remote_steps import RemoteBuild
from tests.cluster.conftest import Build
from tests.cluster.machines import Compiler, is_alive
from tests.cluster.slurm_daemons import missing_programs, slurm
from tests.cluster.test_builds import HOST, UNITS, exit_code_after, meanwhile, take_files

pytestmark = pytest.mark.skipif(bool(missing_programs()), reason=f"Slurm can't be started: {missing_programs()}")

SITE = "{cores: 1, memory: 1500MB, interface: lo, directives: ['--overcommit']}\n"


@pytest.fixture(scope="module")
def daemons() -> Iterator[None]:
    with (
        tempfile.TemporaryDirectory() as folder,  # munged refuses pytest's folder, which others can't enter
        slurm(Path(folder)) as configuration,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("SLURM_CONF", str(configuration))
        yield


@pytest.fixture
def site(tmp_path: Path, daemons: None, compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> str:
    file = tmp_path / "site.yaml"
    file.write_text(SITE)
    monkeypatch.setenv("CKPM_TEST_WORKER", "job")
    return str(file)


def jobs() -> list[str]:
    """Ids of the jobs that wait or run."""
    states = "--states=PENDING,CONFIGURING,RUNNING"
    run = subprocess.run(["squeue", "--noheader", "--format=%i", states], capture_output=True, text=True, check=True)
    return run.stdout.split()


def test_jobs_build_bytes_of_one_machine(
    site: str, build: Build, compiler: Compiler, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--cluster", "slurm", "--workers", "2", "--cluster-file", site, "--partition", "short")
    assert build("work", *options, "--walltime", "00:10:00", "--no-cache") == 0
    shown = capsys.readouterr().out
    assert "Slurm: 2 jobs submitted" in shown
    assert "6 compiled (4 kernels), 0 from the cache, linked, manifest written" in shown
    assert jobs() == []
    many = take_files(tmp_path / "work")
    assert build("work", "--no-cache") == 0
    one = take_files(tmp_path / "work")
    assert {name: many[name] for name in one} == one  # and the jobs' logs


def test_cancelled_job_costs_second_compile(site: str, build: Build, compiler: Compiler, tmp_path: Path) -> None:
    compiler.hold_one()

    def cancel() -> None:
        _, process = compiler.wait_for_held()
        text = Path(f"/proc/{process}/environ").read_bytes().decode()
        job = next(word for word in text.split("\0") if word.startswith("SLURM_JOB_ID="))
        subprocess.run(["scancel", job.partition("=")[2]], check=True)

    thread = meanwhile(cancel)
    assert build("work", "--cluster", "slurm", "--workers", "2", "--cluster-file", site, "--no-cache") == 0
    thread.join()
    assert len(compiler.compiles()) == UNITS + HOST + 1
    assert jobs() == []


def test_cancelled_build_leaves_no_job_and_no_secret(
    site: str, build: Build, compiler: Compiler, tmp_path: Path
) -> None:
    compiler.hold_one()
    held: list[int] = []
    refusals: list[str] = []
    folder = tmp_path / "work/build/gfx950/aiter"

    def interrupt() -> None:
        held.append(compiler.wait_for_held()[1])
        try:
            build_file = RemoteBuild.read(folder / "cluster.json")
            assert (Path(build_file.credentials) / "key.pem").stat().st_mode & 0o077 == 0
            with pytest.raises(ServiceError) as refused:
                connect(build_file.scheduler)
            refusals.append(str(refused.value))
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    thread = meanwhile(interrupt)
    command = ("--cluster", "slurm", "--workers", "1", "--cluster-file", site, "--no-cache")
    assert exit_code_after(signal.SIGTERM, lambda: build("work", *command)) == 128 + signal.SIGTERM
    thread.join()
    assert len(refusals) == 1, "the scheduler answers a client without the certificate"
    assert jobs() == []
    assert not is_alive(held[0])
    assert list(folder.rglob("*.pem")) == []


def test_refused_job_is_reported_with_output_of_sbatch(
    site: str, build: Build, compiler: Compiler, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build("work", "--cluster", "slurm", "--cluster-file", site, "--partition", "none") == ServiceError.exit_code
    assert "Slurm refuses the job: sbatch: error: invalid partition specified: none" in capsys.readouterr().err


def test_jobs_that_end_at_once_fail_build(
    site: str, build: Build, compiler: Compiler, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(site).write_text(SITE.replace("{", "{python: /nowhere/python, "))
    assert build("work", "--cluster", "slurm", "--cluster-file", site) == ServiceError.exit_code
    assert "/nowhere/python" in capsys.readouterr().err

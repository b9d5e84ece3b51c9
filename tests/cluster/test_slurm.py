"""Workers are jobs of a real Slurm on this machine, and end with the command."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ckpm.base.errors import ServiceError
from ckpm.cluster.connection import connect
from ckpm.cluster.remote_steps import RemoteBuild
from ckpm.cluster.site import read_site
from ckpm.cluster.slurm import _hopeless
from ckpm.cluster.slurm import slurm as slurm_workers
from tests.cluster.conftest import KERNELS
from tests.cluster.machines import Compiler, is_alive
from tests.cluster.slurm_daemons import missing_programs, slurm
from tests.cluster.test_builds import HOST, UNITS, meanwhile, take_files
from tests.unit.shared import Run

pytestmark = pytest.mark.skipif(bool(missing_programs()), reason=f"Slurm can't be started: {missing_programs()}")

# a shell's background job ignores SIGINT
PROGRAM = """import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from ckpm import commands
sys.exit(commands.main(sys.argv[1:]))
"""
CONNECT = "import sys; from ckpm.cluster.connection import connect; connect(sys.argv[1])"
SITE = "{cores: 1, memory: 1500MB, interface: lo, directives: ['--overcommit']}\n"
SMALL = msgspec.structs.replace(read_site(None, None, None), cores=1, memory="1500MB", directives=("--overcommit",))


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


def job_of(process: int) -> str:
    """The id of the job that a process descends from: a compiler itself gets no variable of Slurm."""
    variables = Path(f"/proc/{process}/environ").read_text().split("\0")
    job = [variable.partition("=")[2] for variable in variables if variable.startswith("SLURM_JOB_ID=")]
    parent = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1]
    return job[0] if job else job_of(int(parent))


def test_jobs_build_bytes_of_one_machine(site: str, build: Run, compiler: Compiler, tmp_path: Path) -> None:
    options = ("--cluster", "slurm", "--workers", "2", "--cluster-file", site, "--partition", "short")
    code, shown, _ = build("work", *options, "--walltime", "00:10:00", "--no-cache")
    assert code == 0
    assert "Slurm: 2 jobs submitted" in shown
    assert "6 compiled (4 kernels), 0 from the cache, linked, manifest written" in shown
    assert jobs() == []
    many = take_files(tmp_path / "work")
    assert build("work", "--no-cache")[0] == 0
    from_one_machine = take_files(tmp_path / "work")
    assert {name: many[name] for name in from_one_machine} == from_one_machine  # and the jobs' logs


def test_cancelled_job_costs_second_compile(site: str, build: Run, compiler: Compiler, tmp_path: Path) -> None:
    compiler.hold_one()

    def cancel() -> None:
        _, process = compiler.wait_for_held()
        subprocess.run(["scancel", job_of(process)], check=True)

    thread = meanwhile(cancel)
    assert build("work", "--cluster", "slurm", "--workers", "2", "--cluster-file", site, "--no-cache")[0] == 0
    thread.join()
    assert len(compiler.compiles()) == UNITS + HOST + 1
    assert jobs() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_cancelled_build_leaves_no_job_and_no_secret(
    site: str, compiler: Compiler, tmp_path: Path, number: signal.Signals
) -> None:
    """The build is a new process, because the first import of dask_jobqueue replaces a handler."""
    compiler.hold_one()
    folder = tmp_path / "build/gfx950/aiter"
    command = ["build", *KERNELS, "--work", str(tmp_path), "--toolchain", "rocm", "--no-cache"]
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *command, "--cluster", "slurm", "--workers", "1", "--cluster-file", site],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            _, held = compiler.wait_for_held()
            build_file = RemoteBuild.read(folder / "cluster.json")
            assert (Path(build_file.credentials) / "key.pem").stat().st_mode & 0o077 == 0
            connecting = [sys.executable, "-c", CONNECT, build_file.scheduler]
            refused = subprocess.run(connecting, capture_output=True, text=True, check=False).stderr
            assert "ServiceError: no Dask scheduler answers" in refused  # to a client without the certificate
        finally:
            process.send_signal(number)
        printed = process.communicate()[1]
    assert process.returncode == 128 + number
    assert "run the same command again to go on" in printed
    assert jobs() == []
    assert not is_alive(held)
    assert list(folder.rglob("*.pem")) == []


def test_run_beside_another_keeps_its_credentials(daemons: None, tmp_path: Path) -> None:
    with contextlib.ExitStack() as second:
        with slurm_workers(SMALL, 1, tmp_path) as (address, credentials, _):
            beside = second.enter_context(slurm_workers(SMALL, 1, tmp_path))
            connect(address, credentials).close()
        connect(*beside[:2]).close()  # after the end of the first
    assert list(tmp_path.rglob("*.pem")) == []


def test_reason_for_no_worker_is_in_log_of_own_job(daemons: None, tmp_path: Path) -> None:
    own_log, log_of_another = tmp_path / "ckpm-900001.err", tmp_path / "ckpm-9000011.err"
    own_log.write_text("no such python")
    log_of_another.write_text("no such module")
    os.utime(own_log, (0, 0))
    assert _hopeless(("900001",), tmp_path).endswith(f"Logs: {tmp_path}\nno such python")


def test_network_reaches_only_ports_with_tls(daemons: None, tmp_path: Path) -> None:
    """Without an interface, servers of Dask listen on all."""
    with slurm_workers(SMALL, 1, tmp_path) as (address, credentials, _), connect(address, credentials) as client:
        client.wait_for_workers(1, timeout=120)
        ((worker, process),) = client.run(os.getpid).items()
        ((_, nanny),) = client.run(os.getppid).items()
        servers = {server for pid in (os.getpid(), process, nanny) for server in servers_on_network(pid)}
        assert {int(endpoint.rpartition(":")[2]) for endpoint in (address, worker)} <= {port for _, port in servers}
        for host, port in servers:
            assert speaks_tls(host, port), f"{host}:{port} answers without a certificate"


def servers_on_network(process: int) -> set[tuple[str, int]]:
    """Address and port of each TCP server of a process, without those of the loopback."""
    links = [str(file.readlink()) for file in Path(f"/proc/{process}/fd").iterdir() if file.is_symlink()]
    sockets = {link.removeprefix("socket:[").rstrip("]") for link in links if link.startswith("socket:")}
    files = (Path(f"/proc/{process}/net/{name}") for name in ("tcp", "tcp6"))
    rows = [line.split() for file in files for line in file.read_text().splitlines()[1:]]
    listening = [row[1].split(":") for row in rows if row[3] == "0A" and row[9] in sockets]
    servers = {(_address(host), int(port, 16)) for host, port in listening}
    return {(host, port) for host, port in servers if not ipaddress.ip_address(host).is_loopback}


def _address(hexadecimal: str) -> str:
    """The address of a row of /proc/net/tcp or tcp6: words of 32 bits, in the machine's byte order."""
    data = bytes.fromhex(hexadecimal)
    return str(ipaddress.ip_address(b"".join(data[at : at + 4][::-1] for at in range(0, len(data), 4))))


def speaks_tls(host: str, port: int) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((host, port), timeout=20) as plain:
        try:
            with context.wrap_socket(plain):
                return True
        except OSError:  # ssl.SSLError, or a timeout: HTTP waits for more
            return False


def test_refused_job_is_reported_with_output_of_sbatch(site: str, build: Run, compiler: Compiler) -> None:
    code, _, err = build("work", "--cluster", "slurm", "--cluster-file", site, "--partition", "none")
    assert code == ServiceError.exit_code
    assert "Slurm refuses the job: sbatch: error: invalid partition specified: none" in err


def test_jobs_that_end_at_once_fail_build(site: str, build: Run, compiler: Compiler) -> None:
    Path(site).write_text(SITE.replace("{", "{python: /nowhere/python, "))
    code, _, err = build("work", "--cluster", "slurm", "--cluster-file", site)
    assert (code, "/nowhere/python" in err) == (ServiceError.exit_code, True)

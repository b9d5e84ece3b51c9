"""A Slurm of one node on this machine: munged, slurmctld and slurmd with a configuration in a folder of a test."""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol")
PROCESSORS, MEGABYTES = 2, 3000

_CONFIGURATION = """ClusterName=ckpm
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
KillWait=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
NodeName={host} NodeAddr=127.0.0.1 CPUs={processors} RealMemory={megabytes} State=UNKNOWN
PartitionName=short Nodes={host} Default=YES MaxTime=INFINITE State=UP
PartitionName=closed Nodes={host} Default=NO State=DOWN
"""


def missing_programs() -> str:
    """The programs of Slurm that are not installed, or ''."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    return f"not installed: {', '.join(missing)} (Debian: apt-get install slurm-wlm munge)" if missing else ""


@contextlib.contextmanager
def slurm(folder: Path) -> Iterator[Path]:
    """Run the daemons, and yield the configuration for SLURM_CONF."""
    for name in ("state", "spool"):
        (folder / name).mkdir()
    (folder / "munge.key").write_bytes(secrets.token_bytes(1024))
    (folder / "munge.key").chmod(0o600)
    file = folder / "slurm.conf"
    file.write_text(
        _CONFIGURATION.format(
            host=socket.gethostname().partition(".")[0],
            ports=_free_ports(2),
            folder=folder,
            user=getpass.getuser(),
            processors=PROCESSORS,
            megabytes=MEGABYTES,
        )
    )
    with contextlib.ExitStack() as stack:
        _start(stack, _munge_command(folder))
        _start(stack, ["slurmctld", "-D", "-i", "-f", str(file)])
        _start(stack, ["slurmd", "-D", "-f", str(file)])
        _until_idle(file)
        yield file


def _munge_command(folder: Path) -> list[str]:
    names = {"socket": "munge.socket", "key-file": "munge.key", "pid-file": "munge.pid", "log-file": "munge.log"}
    options = [f"--{option}={folder / name}" for option, name in names.items()]
    return ["munged", "--foreground", "--force", *options, f"--seed-file={folder / 'munge.seed'}"]


def _start(stack: contextlib.ExitStack, command: Sequence[str]) -> None:
    """Start a daemon in the foreground, which ends with the stack."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    process = subprocess.Popen(
        command, env={**os.environ, "PATH": path}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def end() -> None:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    stack.callback(end)


def _until_idle(file: Path) -> None:
    """Wait until a job runs; srun waits for controller and node."""
    command = ["srun", "--immediate=60", "-n1", "true"]
    end = time.monotonic() + 120
    while time.monotonic() < end:
        run = subprocess.run(command, env={**os.environ, "SLURM_CONF": str(file)}, capture_output=True, text=True)
        if run.returncode == 0:
            return
    logs = [log.read_text(errors="replace")[-2000:] for log in file.parent.glob("*.log")]
    raise AssertionError("\n".join(["Slurm does not start a job", run.stderr, *logs]))


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for item in sockets:
            item.bind(("127.0.0.1", 0))
        return [int(item.getsockname()[1]) for item in sockets]

"""A scheduler and workers as processes on this machine, and a compiler that a test can hold during a unit."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from distributed import Client

ROOT = Path(__file__).resolve().parents[2]
_ADDRESS = re.compile(r"Scheduler at:\s+(tcp://\S+)")
_REGISTERED = re.compile(r"Registered to:")

# A hipcc. It copies the source to the object, or all objects to the library, and logs its worker. The compile that
# removes the file `hold` writes into the pipe `begun` and waits for ever. A source named in the file `deadly` kills its
# worker, the parent of the guard. A source named in `broken` has an error.
COMPILER = """#!/bin/sh
case $1 in --version) echo "HIP version: 9.9"; echo "clang version 9.9.9"; exit 0;; esac
here=$(dirname "$0")/..
objects=
for word; do
  case $previous in -c) in=$word;; -o) out=$word;; esac
  case $word in *.o) [ "$previous" = -o ] || objects="$objects $word";; esac
  previous=$word
done
[ -n "$in" ] || { cat $objects > "$out"; exit; }
echo "${CKPM_TEST_WORKER:-here} $(basename "$in")" >> "$here/log"
[ -e "$here/deadly" ] && case $in in *$(cat "$here/deadly")*) kill -9 $(awk '{print $4}' /proc/$PPID/stat);; esac
if rm "$here/hold" 2> /dev/null; then echo ${CKPM_TEST_WORKER:-here} $$ > "$here/begun"; cat "$here/never"; fi
[ -e "$here/broken" ] && case $in in *$(cat "$here/broken")*) echo "$in:1:1: error: no such thing"; exit 1;; esac
cp "$in" "$out"
"""


@dataclass(frozen=True)
class Compiler:
    """The stub in a folder that stands for ROCM_PATH."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Compiler:
        (folder / "bin").mkdir(parents=True)
        (folder / "bin/hipcc").write_text(COMPILER)
        (folder / "bin/hipcc").chmod(0o755)
        for pipe in ("begun", "never"):
            os.mkfifo(folder / pipe)
        return cls(folder)

    def hold_one(self) -> None:
        """Hold the next compile."""
        (self.folder / "hold").touch()

    def wait_for_held(self) -> tuple[str, int]:
        """Wait until the held compile has begun; return its worker's name and its process."""
        worker, process = (self.folder / "begun").read_text().split()
        return worker, int(process)

    def forget(self) -> None:
        """Clear the log, and hold, kill or break no more compiles."""
        for name in ("log", "hold", "deadly", "broken"):
            (self.folder / name).unlink(missing_ok=True)

    def compiles(self) -> list[tuple[str, str]]:
        """Worker and source of every compile that has begun."""
        file = self.folder / "log"
        return [(line.split()[0], line.split()[1]) for line in file.read_text().splitlines()] if file.exists() else []


@dataclass
class Machines:
    """A scheduler's address and its workers' processes by name."""

    address: str
    environment: Mapping[str, str]
    folder: Path
    workers: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def start(self, name: str, *options: str, root: Path = ROOT, **environment: str) -> None:
        """Start a worker with one thread, and wait until it has registered."""
        command = ["distributed.cli.dask_worker", self.address, "--name", name, "--nthreads", "1", "--no-dashboard"]
        command += ["--local-directory", str(self.folder), *options]
        more = {**self.environment, **environment, "PYTHONPATH": str(root), "CKPM_TEST_WORKER": name}
        self.workers[name] = _start(command, more, root)
        _await(self.workers[name], _REGISTERED)

    def kill(self, name: str) -> None:
        """Kill a worker without warning."""
        self.workers[name].send_signal(signal.SIGKILL)
        self.workers[name].wait()

    def tasks(self) -> int:
        """Number of tasks that the scheduler still processes."""
        with Client(self.address, set_as_default=False) as client:
            return sum(len(keys) for keys in client.processing().values())

    def stop(self) -> None:
        for process in self.workers.values():
            process.kill()
            process.wait()


@contextlib.contextmanager
def machines(folder: Path, environment: Mapping[str, str]) -> Iterator[Machines]:
    """Start a scheduler without workers."""
    command = ["distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
    scheduler = _start(command, {**environment, "PYTHONPATH": str(ROOT)})
    there = Machines(_await(scheduler, _ADDRESS), environment, folder)
    try:
        yield there
    finally:
        there.stop()
        scheduler.kill()
        scheduler.wait()


def _start(command: list[str], environment: Mapping[str, str], root: Path = ROOT) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=root,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _await(process: subprocess.Popen[str], sign: re.Pattern[str]) -> str:
    """Read the log of a process up to a sign, and discard the rest. Return the sign's group or ''."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if match := sign.search(line):
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return match[1] if match.groups() else ""
    raise AssertionError("".join(lines))


def is_alive(process: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return False

"""A command that runs with an owner ends with the owner, and its children with it, however the owner ends."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from ckpm.base.paths import PYTHONPATH
from ckpm.reports.release.run import execute
from ckpm.reports.release.stages import StageStep

# A stage with a worker in the background; both ignore the signals of an orderly end.
STAGE = """
import os, signal, subprocess, sys
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
fifo = os.open(sys.argv[1], os.O_WRONLY)
subprocess.Popen(["sleep", "100"], pass_fds=[fifo])
os.write(fifo, b"started")
os.system("sleep 100")
"""
OWNER = """
import os, pathlib, sys, time
from ckpm.base.processes import group, owned_command
command = owned_command([sys.executable, "-c", *sys.argv[1:]])
with group(command, cwd=pathlib.Path("."), environment=os.environ, output=None):
    time.sleep(100)
"""


def test_killed_owner_leaves_no_process(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    pipe = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    with subprocess.Popen([sys.executable, "-c", OWNER, STAGE, str(fifo)], env=environment) as owner:
        assert select.select([pipe], [], [], 60)[0]
        assert os.read(pipe, 100) == b"started"
        owner.kill()
    assert select.select([pipe], [], [], 60)[0]
    assert os.read(pipe, 100) == b""  # closed: none of them is left
    os.close(pipe)


def test_stage_ends_with_code_of_its_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    step = StageStep(stage="s", arch="gfx950", command=("count", "--where", "key.nope == 1"), outputs={}, needs=())
    assert execute(step, tmp_path, 0) == 2
    assert "unknown field 'key.nope'" in capfd.readouterr().err

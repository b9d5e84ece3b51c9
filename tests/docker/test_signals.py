"""Ctrl-C and SIGTERM end and remove a running container of a real engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from ckpm.base.errors import SetupError
from ckpm.docker.building import BuiltImage
from ckpm.docker.engines import Engine, detect

ROOT = Path(__file__).parents[2]

# In the container, a background process and a marked shell hold a pipe in a mounted folder open.
INSIDE = "exec 3>{pipe}; sleep {mark} & echo started >&3; sleep {mark}"
PROGRAM = """
import signal, sys, uuid
from pathlib import Path
from ckpm.base.processes import ended_by_signals
from ckpm.docker import running
from ckpm.docker.engines import Mount, Run, detect
from ckpm.base.entry import exit_code
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where these tests run in the background
running.uuid.uuid4 = lambda: uuid.UUID({identity!r})
folder = Path({folder!r})
order = Run(
    image={tag!r}, command=["sh", "-c", {inside!r}, {mark!r}], user="0:0",
    mounts=[Mount(source=folder, target=folder, writable=True)],
)
def command():
    with ended_by_signals():
        return running.run(detect({engine!r}), order).returncode
sys.exit(exit_code(command))
"""


@pytest.fixture(params=["docker", "podman", "buildah"])
def other(request: pytest.FixtureRequest, engine: Engine, built: BuiltImage) -> Engine:
    """Each engine that has the image. podman and buildah share their images."""
    try:
        other_engine = detect(request.param)
    except SetupError as error:
        pytest.skip(f"the engine does not work here: {error}")
    if (other_engine.name == "docker") != (engine.name == "docker"):
        pytest.skip(f"the image was built with {engine.name}")
    return other_engine


def containers(engine: Engine) -> str:
    arguments = ["containers"] if engine.name == "buildah" else ["ps", "--all"]
    return subprocess.run([engine.program, *arguments], capture_output=True, text=True, check=True).stdout


def processes(mark: str) -> list[str]:
    """Command lines on this machine that have the mark as a word."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = file.read_bytes().decode(errors="replace").split("\0")
        except OSError:  # it has ended
            continue
        if mark in arguments:
            lines.append(" ".join(arguments))
    return lines


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_ends_and_removes_container(
    other: Engine, built: BuiltImage, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    identity = uuid.uuid4()
    mark, name = str(identity.int % 10**6 + 10**6), f"ckpm-{identity.hex[:12]}"  # seconds to sleep, unique to this test
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    program = PROGRAM.format(
        folder=str(tmp_path), tag=built.tag, inside=INSIDE.format(pipe=pipe, mark=mark), engine=other.name,
        identity=identity.hex, mark=mark,
    )  # fmt: skip
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT) as child, pipe.open() as stream:
        try:
            assert stream.readline() == "started\n"
            assert processes(mark)
            assert name in containers(other)
        finally:  # also after a failure, because the next line waits for the end
            child.send_signal(number)
        assert stream.read() == ""  # no process has the other end
        assert child.wait() == code
    assert processes(mark) == []
    assert name not in containers(other)

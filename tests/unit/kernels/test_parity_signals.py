"""Parity that is ended begins nothing more, ends the codegens that it started, and leaves no file."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ckpm.kernels.upstream.tree import FMHA

ROOT = Path(__file__).parents[3]
MARKS = "# do_fp8_static_quant targets\n"  # of November 2025
# A codegen that reports its start, asks another process for help, and never ends. All hold the pipe.
ENDLESS = """\
import os, signal, subprocess
pipe = os.open("PIPE", os.O_WRONLY)
os.write(pipe, b"started\\n")
subprocess.run(["sleep", "1000"], pass_fds=[pipe])
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A checkout of CK whose codegen never ends."""
    ops = tmp_path / "ck" / FMHA / "codegen/ops"
    ops.mkdir(parents=True)
    (tmp_path / "ck/include/ck_tile").mkdir(parents=True)
    (tmp_path / "ck" / FMHA / "generate.py").write_text(ENDLESS.replace("PIPE", str(tmp_path / "pipe")))
    (ops / "fmha_batch_prefill.py").write_text(MARKS)
    return tmp_path / "ck"


@pytest.mark.parametrize("family", ["batch_prefill", "bwd_dq_dk_dv"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_ended_parity_leaves_nothing(
    clone: Path, tmp_path: Path, number: signal.Signals, code: int, family: str
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    os.mkfifo(tmp_path / "pipe")
    pipe = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    environment = {**os.environ, "TMPDIR": str(temporary)}
    environment |= {"CKPM_CACHE": str(tmp_path / "cache")}
    options = ["--ck-root", str(clone), "--upstream", "checkout", "--family", family, "--arch", "gfx950"]
    run = subprocess.Popen(
        [sys.executable, "-m", "ckpm", "parity", *options, "--no-machine-code", "--no-stored"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's job ignores it
    )
    assert select.select([pipe], [], [], 60)[0], "no codegen was started"
    run.send_signal(number)
    begun = read_to_end(pipe)
    for again in (signal.SIGINT, signal.SIGTERM):  # a person who does not wait
        run.send_signal(again)
    _, errors = run.communicate(timeout=60)
    assert run.returncode == code, errors
    assert len(errors.splitlines()) == 1, errors
    assert errors.startswith("error: ")
    assert list(temporary.iterdir()) == []
    assert 1 <= begun.count(b"started") <= len(os.sched_getaffinity(0)), "more was begun"


def read_to_end(pipe: int) -> bytes:
    """Read all that was written, until no process holds the other end."""
    data = b""
    while True:
        assert select.select([pipe], [], [], 30)[0], "a process goes on"
        if not (part := os.read(pipe, 1000)):
            return data
        data += part

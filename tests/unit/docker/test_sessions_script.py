"""docker/sessions.sh makes environments once, in one run at a time, and again after an interrupted run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from ckpm.docker.images import FOLDER

# A stand-in for Python: `-m venv FOLDER` makes a nox and a pip that record their calls. pip, which takes long, writes
# into a pipe and waits for a line in another.
_PYTHON = """#!/bin/sh
if [ "$1" = -c ]; then exit 0; fi
echo making >> {here}/made
mkdir -p "$3/bin"
printf '#!/bin/sh\\necho started > {here}/started\\nread -r word < {here}/proceed\\n' > "$3/bin/python"
printf '#!/bin/sh\\nwhile [ "$1" != --session ]; do shift; done; shift; echo "$@" >> {here}/ran\\n' > "$3/bin/nox"
chmod 755 "$3/bin/python" "$3/bin/nox"
"""


class Checkout:
    """A folder with a requirements.txt in which sessions run. ``environments`` is the script's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.environments = folder, folder / "environments"
        (folder / "bin").mkdir()
        python = folder / "bin" / "python3"
        python.write_text(_PYTHON.format(here=folder))
        python.chmod(0o755)
        for name in ("started", "proceed"):
            os.mkfifo(folder / name)
        (folder / "requirements.txt").write_text("nox==1\n")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}
        return subprocess.Popen(
            ["sh", str(FOLDER / "sessions.sh"), str(self.environments), *arguments],
            cwd=self.folder, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def wait_until_it_makes(self) -> None:
        assert (self.folder / "started").read_text() == "started\n"

    def let_it_go_on(self) -> None:
        (self.folder / "proceed").write_text("go on\n")

    def lines(self, name: str) -> list[str]:
        file = self.folder / name
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    if shutil.which("flock") is None:
        pytest.fail("flock is missing; every image has it (util-linux)")
    return Checkout(tmp_path)


def test_second_run_waits_for_environment(checkout: Checkout) -> None:
    first = checkout.start("build-gfx950", "--", "--tier", "full")
    checkout.wait_until_it_makes()
    second = checkout.start("doctor")
    assert second.stdout is not None
    assert second.stdout.readline().startswith("waiting for another run that makes the environments")
    assert checkout.lines("ran") == []  # no session runs in an unfinished environment
    checkout.let_it_go_on()
    assert (first.communicate()[0], second.communicate()[0]) == ("", "")
    assert (first.returncode, second.returncode) == (0, 0)
    assert checkout.lines("made") == ["making"]
    assert checkout.lines("ran")[0] == "environment"
    assert sorted(checkout.lines("ran")[1:]) == ["build-gfx950 -- --tier full", "doctor"]


def test_interrupted_environment_is_made_again(checkout: Checkout) -> None:
    first = checkout.start("doctor")
    checkout.wait_until_it_makes()
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    second = checkout.start("doctor")
    checkout.wait_until_it_makes()
    checkout.let_it_go_on()
    second.communicate()
    assert second.returncode == 0
    assert checkout.lines("made") == ["making", "making"]
    third = checkout.start("doctor")
    third.communicate()
    assert checkout.lines("made") == ["making", "making"]
    assert checkout.lines("ran") == ["environment", "doctor", "doctor"]


def test_other_requirements_have_other_environments(checkout: Checkout) -> None:
    for requirements in ("nox==1\n", "nox==2\n"):
        (checkout.folder / "requirements.txt").write_text(requirements)
        run = checkout.start("doctor")
        checkout.wait_until_it_makes()
        checkout.let_it_go_on()
        run.communicate()
    assert len(list(checkout.environments.glob("*/complete"))) == 2  # the first can still be in use

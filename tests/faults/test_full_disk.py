"""A full disk: the message names the file, the exit code is DiskFullError's, and no draft is left.

The disk is a file system in memory of a few kilobytes, mounted in a user namespace.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ckpm.base.errors import DiskFullError
from ckpm.base.outputs import RECORD
from ckpm.base.paths import PROJECT
from tests.unit.reports import report_samples

MOUNTED = 'mount -t tmpfs -o size="$1" none "$2" && shift 2 && exec "$@"'
UNSHARE = ("unshare", "--user", "--map-root-user", "--mount")


def run_on_disk(size: str, folder: Path, *command: str, left: Path) -> subprocess.CompletedProcess[str]:
    """Run a command while ``folder`` is a small disk. Write a list of its files into ``left``."""
    folder.mkdir(exist_ok=True)
    listed = f'"$@"; code=$?; find "{folder}" -type f > "{left}"; exit $code'
    arguments = ["sh", "-c", MOUNTED, "sh", size, str(folder), "sh", "-c", listed, "sh", *command]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "CKPM_CACHE": str(folder / "cache")}
    return subprocess.run([*UNSHARE, *arguments], env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(autouse=True)
def _namespaces() -> None:
    if subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system does not let a user mount a file system")


@pytest.mark.parametrize(
    "arguments",
    [
        ("list", "--format", "json", "--output", "{disk}/out"),
        ("list", "--format", "csv", "--output", "{disk}/deep/out"),
        ("report", "--input", "{build}", "--html", "{disk}/out"),
        ("build", "--dialect", "rocm-libraries-2026", "--render", "{disk}/out"),
    ],
)
def test_output_on_full_disk_ends_with_error(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    disk, left = tmp_path / "disk", tmp_path / "left"
    build = report_samples.write(tmp_path / "build")
    filled = [word.format(disk=disk, build=build) for word in arguments]
    done = run_on_disk("8k", disk, sys.executable, "-m", "ckpm", *filled, left=left)
    assert done.returncode == DiskFullError.exit_code, done.stderr
    assert done.stderr.startswith(f"error: {disk}/")
    assert "no space left on the disk" in done.stderr
    assert "Traceback" not in done.stderr
    hidden = {Path(name).name for name in left.read_text().splitlines() if Path(name).name.startswith(".")}
    assert hidden <= {RECORD}  # of the files that were written, for the next run


def test_store_on_full_disk_keeps_nothing(tmp_path: Path) -> None:
    store = (
        "import sys; from pathlib import Path; from ckpm.base.store import Store; store = Store(Path(sys.argv[1]));"
        "store.put('key', bytes(100_000)); sys.exit(0 if store.get('key') is None else 1)"
    )
    disk, left = tmp_path / "disk", tmp_path / "left"
    done = run_on_disk("16k", disk, sys.executable, "-c", store, str(disk / "store"), left=left)
    assert (done.returncode, done.stderr) == (0, "")
    assert left.read_text() == ""

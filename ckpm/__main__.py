"""``ckpm COMMAND ...``, or ``python -m ckpm COMMAND ...``: one command for all rooms; see ``ckpm/__init__.py``."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ckpm import __version__


class Room(NamedTuple):
    """A room with a command line: the module that ``python -m`` would run, and what it is for."""

    module: str
    purpose: str


ROOMS: Mapping[str, Room] = {
    "matrix": Room("ckpm.matrix", "questions to the matrix: count, list, show, why, export, validate, problems"),
    "kernels": Room(
        "ckpm.kernels", "build libraries, render sources, compare with upstream, look at this machine (doctor)"
    ),
    "reports": Room("ckpm.reports", "gates, accepted figures, JUnit, HTML and Markdown reports"),
    "dispatcher": Room(
        "ckpm.attention", "compile kernels when they are asked for; what C++ programs need of libraries"
    ),
    "emulator": Room("ckpm_emulator", "what a code object needs of the emulated device, and what its hot loops do"),
    "test": Room("ckpm.suites", "run a built library's suites, on a GPU or on the emulator"),
}
_INSTALLED = Path(__file__).resolve().parent / "rooms"
HOME = _INSTALLED if _INSTALLED.is_dir() else _INSTALLED.parents[1]  # the folder that holds the rooms

_HELP = "\n".join(
    (
        "usage: ckpm COMMAND ...",
        "",
        "Build and check AMD Composable Kernel FMHA batch-prefill libraries.",
        "",
        *(f"  {name:<12}{room.purpose}" for name, room in ROOMS.items()),
        "",
        "  --version  print the version, and in a clone the revision",
        "  --help     print this; ckpm COMMAND --help tells more",
    )
)


def main() -> int:
    """Run the command of ``sys.argv``; its exit code. Raises SystemExit with the code of a room that ran."""
    use_rooms()
    from ckpm.base.entry import exit_code  # only now it can be imported

    return exit_code(_command)


def _command() -> int:
    """Raises UsageError: no such command."""
    from ckpm.base.errors import UsageError

    name, *options = sys.argv[1:] or [""]
    if name in ("-h", "--help"):
        print(_HELP)
    elif name == "--version":
        print(f"ckpm {__version__}{_revision()}")
    elif name in ROOMS:
        sys.argv = [f"ckpm {name}", *options]
        runpy.run_module(ROOMS[name].module, run_name="__main__", alter_sys=True)
    else:
        wrong = f"'{name}' is no command" if name else "a command is missing"
        raise UsageError(f"{wrong}: {', '.join(ROOMS)}. See ckpm --help.")
    return 0


def use_rooms() -> None:
    """Let this process and those it starts find the rooms, and nothing of the current folder in their place."""
    sys.path.insert(0, str(HOME))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(HOME), os.environ.get("PYTHONPATH"))))
    os.environ["PYTHONSAFEPATH"] = "1"  # `python -m` would look into the current folder first
    os.environ["CKPM_PROGRAM"] = "ckpm"  # messages name commands as they were called: base/entry.py


def _revision() -> str:
    """`` (revision)`` of a clone, with ``-dirty`` if it is changed; nothing elsewhere or without git."""
    if not (HOME / ".git").exists():
        return ""
    command = ["git", "-C", str(HOME), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return f" ({done.stdout.strip()})" if done.returncode == 0 else ""


if __name__ == "__main__":
    sys.exit(main())

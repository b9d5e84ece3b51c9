"""Libraries that the timing model's own tables need, built by `ckpm build` in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ckpm.base.display import show
from ckpm.base.errors import InconclusiveError
from ckpm.kernels.library.request import LIBRARY, PROJECT

_SHOWN = 2000  # characters of a build that failed


def built(selection: tuple[str, ...], folder: str, toolchain: str, work: Path) -> Path:
    """The library of ``selection``, options of a build, below ``work``: it lies in build/gfx950/``folder``.

    Raises:
        InconclusiveError: the build failed; the message ends with its words.
    """
    command = [*(sys.executable, "-m", "ckpm", "build", "--arch", "gfx950", "--toolchain", toolchain), *selection]
    command += ["--work", str(work.absolute())]
    show(f"building {folder} below {work}")
    process = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise InconclusiveError(
            f"a library could not be built: {(process.stdout + process.stderr)[-_SHOWN:].strip()}", kind="measure"
        )
    return work / "build" / "gfx950" / folder / LIBRARY

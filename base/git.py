"""Output of git."""

from __future__ import annotations

import subprocess
from pathlib import Path


def git(folder: Path, *words: str) -> bytes | None:
    """Output of a git command in a folder; None if it fails, or git is not installed."""
    try:
        run = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, check=False)
    except OSError:
        return None
    return run.stdout if run.returncode == 0 else None

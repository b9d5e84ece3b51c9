"""The packages that many machines need and one machine doesn't: requirements-cluster.txt."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from ckpm.cluster.errors import PackagesMissingError

REQUIREMENTS = Path(__file__).resolve().parents[1] / "requirements-cluster.txt"


def demand(*modules: str) -> None:
    """Raises PackagesMissingError: a module's package is not installed."""
    if missing := [name for name in modules if importlib.util.find_spec(name) is None]:
        command = f"pip install --require-hashes -r {REQUIREMENTS.name}"
        where = "" if REQUIREMENTS.is_file() else " (the file is in the repository)"
        raise PackagesMissingError(
            f"--scheduler and --cluster need packages that are not installed here: {', '.join(missing)}. "
            f"Install them into this environment: {command}{where}"
        )

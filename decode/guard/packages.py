"""Triton, a requirement of the guard and the decode kernels alone: requirements-triton.txt."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from ckpm.base.errors import SetupError

REQUIREMENTS = Path(__file__).resolve().parents[2] / "requirements-triton.txt"


def demand_triton() -> None:
    """Raise SetupError unless Triton is installed. It compiles for AMD's GPUs without a GPU, ROCm or torch."""
    if importlib.util.find_spec("triton") is None:
        where = "" if REQUIREMENTS.is_file() else " (the file is in the repository)"
        raise SetupError(
            "Triton kernels are compiled by Triton, which is not installed here. "
            f"Install it into this environment: pip install --require-hashes -r {REQUIREMENTS.name}{where}",
            kind="triton",
        )

"""SCons's action for a step of a plan: run_step.py runs it, and it runs again if the plan's signature changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from SCons.Action import FunctionAction  # type: ignore[import-untyped]

from ckpm.kernels.library.plan import Step
from ckpm.kernels.library.run_step import Execute, run_step


class StepAction(FunctionAction):  # type: ignore[misc]
    """The action of one step, whose finished targets are recorded in ``folder``; ``execute`` runs its command.

    Its signature contains neither a path of this machine nor text of this program. So objects of other checkouts, or of
    other versions of this program, are found in the shared cache.
    """

    def __init__(self, step: Step, folder: str, execute: Execute) -> None:
        def run(target: Any, source: Any, env: Any) -> int:
            return run_step(step, env["ENV"], folder, execute)

        super().__init__(run, {"cmdstr": None})  # reported by events, not by SCons
        self._step = step

    def get_presig(self, target: Any, source: Any, env: Any, executor: Any = None) -> bytes:
        """The bytes that SCons hashes besides the sources' content."""
        return f"run {self._step.signature} {Path(self._step.target).name}".encode()

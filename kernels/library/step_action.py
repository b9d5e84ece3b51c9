"""A step of a plan as SCons's action: run_step.py runs it, the plan's signature decides whether it must run again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from SCons.Action import FunctionAction  # type: ignore[import-untyped]

from ckpm.kernels.library.plan import Step
from ckpm.kernels.library.run_step import Execute, run_step


class StepAction(FunctionAction):  # type: ignore[misc]
    """The action of one step, whose finished targets are recorded in ``folder``; ``execute`` runs its command.

    Its signature is made of words that hold no path of this machine and nothing of this program's text: objects that
    another checkout, or another version of ours, put into the shared cache are the same objects.
    """

    def __init__(self, step: Step, folder: str, execute: Execute) -> None:
        def run(target: Any, source: Any, env: Any) -> int:
            return run_step(step, env["ENV"], folder, execute)

        super().__init__(run, {"cmdstr": None})  # said by events, and not by SCons
        self._step = step

    def get_presig(self, target: Any, source: Any, env: Any, executor: Any = None) -> bytes:
        """What SCons hashes, besides the sources' content."""
        return f"run {self._step.signature} {Path(self._step.target).name}".encode()

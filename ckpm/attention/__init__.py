"""Attention calls over built or compiled kernels: see docs/reference/dispatcher.md and docs/reference/jit.md.

Names are imported at first use: compiling needs neither NumPy nor a device.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ckpm.attention.appending import Appended as Appended
    from ckpm.attention.appending import append as append
    from ckpm.attention.arrays.tables import Pages as Pages
    from ckpm.attention.arrays.tensors import OnDevice as OnDevice
    from ckpm.attention.backward.call import BackwardResult as BackwardResult
    from ckpm.attention.backward.call import fmha_backward as fmha_backward
    from ckpm.attention.call import Attention as Attention
    from ckpm.attention.call import fmha as fmha
    from ckpm.attention.dispatcher import Choice as Choice
    from ckpm.attention.dispatcher import ChoiceExplanation as ChoiceExplanation
    from ckpm.attention.dispatcher import Dispatcher as Dispatcher
    from ckpm.attention.kernel_sets import kernel_set as kernel_set
    from ckpm.attention.launch.plan import FinishedLaunch as FinishedLaunch
    from ckpm.attention.launch.plan import LaunchPlan as LaunchPlan
    from ckpm.attention.launch.plan import Timing as Timing
    from ckpm.attention.problems.builder import ProblemBuilder as ProblemBuilder
    from ckpm.attention.problems.validation import validate as validate
    from ckpm.attention.registry import Instance as Instance
    from ckpm.attention.registry import Registry as Registry
    from ckpm.attention.tuning import Measurement as Measurement
    from ckpm.attention.tuning import TuningDatabase as TuningDatabase
    from ckpm.matrix.problems.problem import Problem as Problem
    from ckpm.matrix.problems.problem import Strides as Strides

_MODULES = {
    "ckpm.attention.appending": ("Appended", "append"),
    "ckpm.attention.arrays.tables": ("Pages",),
    "ckpm.attention.arrays.tensors": ("OnDevice",),
    "ckpm.attention.backward.call": ("BackwardResult", "fmha_backward"),
    "ckpm.attention.call": ("Attention", "fmha"),
    "ckpm.attention.dispatcher": ("Choice", "ChoiceExplanation", "Dispatcher"),
    "ckpm.attention.kernel_sets": ("kernel_set",),
    "ckpm.attention.launch.plan": ("FinishedLaunch", "LaunchPlan", "Timing"),
    "ckpm.attention.problems.builder": ("ProblemBuilder",),
    "ckpm.matrix.problems.problem": ("Problem", "Strides"),
    "ckpm.attention.problems.validation": ("validate",),
    "ckpm.attention.registry": ("Instance", "Registry"),
    "ckpm.attention.tuning": ("Measurement", "TuningDatabase"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        from ckpm.base.errors import did_you_mean  # only here: its import takes time

        raise AttributeError(f"module 'ckpm.attention' has no attribute '{name}'{did_you_mean(name, list(_MODULE_OF))}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)

"""From a problem to a running kernel: docs/reference/dispatcher.md and docs/reference/jit.md.

Names are imported when they are asked for: compiling needs neither NumPy nor a device.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dispatcher.appending import Appended, append
    from dispatcher.arrays.tables import Pages
    from dispatcher.arrays.tensors import OnDevice
    from dispatcher.backward.call import Backward, fmha_backward
    from dispatcher.call import Attention, fmha
    from dispatcher.dispatcher import Choice, Dispatcher, Explanation
    from dispatcher.kernel_sets import kernel_set
    from dispatcher.problems.builder import ProblemBuilder
    from dispatcher.problems.validation import validated
    from dispatcher.registry import Instance, Registry
    from dispatcher.tuning import Measurement, TuningDatabase
    from kernels.launch.plan import Plan, Ran, Timing
    from matrix.problems.problem import Problem, Strides

__all__ = [
    "Appended",
    "Attention",
    "Backward",
    "Choice",
    "Dispatcher",
    "Explanation",
    "Instance",
    "Measurement",
    "OnDevice",
    "Pages",
    "Plan",
    "Problem",
    "ProblemBuilder",
    "Ran",
    "Registry",
    "Strides",
    "Timing",
    "TuningDatabase",
    "append",
    "fmha",
    "fmha_backward",
    "kernel_set",
    "validated",
]
_MODULES = {
    "dispatcher.appending": ("Appended", "append"),
    "dispatcher.arrays.tables": ("Pages",),
    "dispatcher.arrays.tensors": ("OnDevice",),
    "dispatcher.backward.call": ("Backward", "fmha_backward"),
    "dispatcher.call": ("Attention", "fmha"),
    "dispatcher.dispatcher": ("Choice", "Dispatcher", "Explanation"),
    "dispatcher.kernel_sets": ("kernel_set",),
    "kernels.launch.plan": ("Plan", "Ran", "Timing"),
    "dispatcher.problems.builder": ("ProblemBuilder",),
    "matrix.problems.problem": ("Problem", "Strides"),
    "dispatcher.problems.validation": ("validated",),
    "dispatcher.registry": ("Instance", "Registry"),
    "dispatcher.tuning": ("Measurement", "TuningDatabase"),
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'dispatcher' has no attribute '{name}'")
    return getattr(importlib.import_module(_PLACES[name]), name)

"""Attention calls over built or compiled kernels: see docs/reference/dispatcher.md and docs/reference/jit.md.

Names are imported at first use: compiling needs neither NumPy nor a device.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ckpm.attention.appending import Appended, append
    from ckpm.attention.arrays.tables import Pages
    from ckpm.attention.arrays.tensors import OnDevice
    from ckpm.attention.backward.call import Backward, fmha_backward
    from ckpm.attention.call import Attention, fmha
    from ckpm.attention.dispatcher import Choice, Dispatcher, Explanation
    from ckpm.attention.kernel_sets import kernel_set
    from ckpm.attention.launch.plan import Plan, Ran, Timing
    from ckpm.attention.problems.builder import ProblemBuilder
    from ckpm.attention.problems.validation import validate
    from ckpm.attention.registry import Instance, Registry
    from ckpm.attention.tuning import Measurement, TuningDatabase
    from ckpm.matrix.problems.problem import Problem, Strides

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
    "validate",
]
_MODULES = {
    "ckpm.attention.appending": ("Appended", "append"),
    "ckpm.attention.arrays.tables": ("Pages",),
    "ckpm.attention.arrays.tensors": ("OnDevice",),
    "ckpm.attention.backward.call": ("Backward", "fmha_backward"),
    "ckpm.attention.call": ("Attention", "fmha"),
    "ckpm.attention.dispatcher": ("Choice", "Dispatcher", "Explanation"),
    "ckpm.attention.kernel_sets": ("kernel_set",),
    "ckpm.attention.launch.plan": ("Plan", "Ran", "Timing"),
    "ckpm.attention.problems.builder": ("ProblemBuilder",),
    "ckpm.matrix.problems.problem": ("Problem", "Strides"),
    "ckpm.attention.problems.validation": ("validate",),
    "ckpm.attention.registry": ("Instance", "Registry"),
    "ckpm.attention.tuning": ("Measurement", "TuningDatabase"),
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'dispatcher' has no attribute '{name}'")
    return getattr(importlib.import_module(_PLACES[name]), name)

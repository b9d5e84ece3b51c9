"""From a problem to a running kernel: docs/reference/dispatcher.md."""

from dispatcher import reference
from dispatcher.append import Appended, append
from dispatcher.arrays.tables import Pages
from dispatcher.arrays.tensors import OnDevice
from dispatcher.builder import ProblemBuilder
from dispatcher.call import Attention, fmha
from dispatcher.dispatcher import Choice, Dispatcher, Explanation
from dispatcher.kernel_set import kernel_set
from dispatcher.plan import Plan, Ran, Timing
from dispatcher.problem import Problem, Strides
from dispatcher.registry import Instance, Registry
from dispatcher.tuning import Measurement, TuningDatabase
from dispatcher.validation import validated

__all__ = [
    "Appended",
    "Attention",
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
    "kernel_set",
    "reference",
    "validated",
]

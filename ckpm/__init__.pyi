# The public Python API: the only list of its names (docs/reference/python.md describes them).
from ckpm import aiter as aiter  # noqa: A004  # as the package is named
from ckpm import torch as torch
from ckpm.attention.appending import Appended as Appended
from ckpm.attention.appending import append as append
from ckpm.attention.arrays.tables import Pages as Pages
from ckpm.attention.arrays.tensors import OnDevice as OnDevice
from ckpm.attention.backward.call import BackwardResult as BackwardResult
from ckpm.attention.backward.call import fmha_backward as fmha_backward
from ckpm.attention.call import Attention as Attention
from ckpm.attention.call import fmha as fmha
from ckpm.attention.call import library_folders as library_folders
from ckpm.attention.callers.installing import install as install
from ckpm.attention.chunks import chunk_lengths as chunk_lengths
from ckpm.attention.chunks import chunk_pages as chunk_pages
from ckpm.attention.dispatcher import Choice as Choice
from ckpm.attention.dispatcher import ChoiceExplanation as ChoiceExplanation
from ckpm.attention.dispatcher import Dispatcher as Dispatcher
from ckpm.attention.kernel_sets import kernel_set as kernel_set
from ckpm.attention.launch.device import choose as choose
from ckpm.attention.launch.plan import FinishedLaunch as FinishedLaunch
from ckpm.attention.launch.plan import LaunchPlan as LaunchPlan
from ckpm.attention.launch.plan import Timing as Timing
from ckpm.attention.problems.builder import ProblemBuilder as ProblemBuilder
from ckpm.attention.problems.validation import validate as validate
from ckpm.attention.registry import Instance as Instance
from ckpm.attention.registry import Registry as Registry
from ckpm.attention.tuning import Measurement as Measurement
from ckpm.attention.tuning import TuningDatabase as TuningDatabase
from ckpm.commands import build as build
from ckpm.commands import list_kernels as list_kernels
from ckpm.commands import why as why
from ckpm.matrix.problems.problem import Problem as Problem
from ckpm.matrix.problems.problem import Strides as Strides

__all__: list[str]
__version__: str

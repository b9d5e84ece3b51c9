"""The interface between a gate's command and the subjects that it judges."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from ckpm.reports.gates.baseline import Baseline, Figures
from ckpm.reports.gates.comparing import Threshold
from ckpm.reports.verdicts import Row

DECODE = "decode"  # the family of the kernels in decode, which are not a library
DECODE_CYCLES = "timing_cycles_a_token"  # their metric of the timing model


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Functions of one gate: measure figures, and compare them with the accepted ones.

    ``present``: the subjects, if they are known before anything is measured.
    """

    measure: Callable[[], Figures]
    rows: Callable[[Baseline, Figures, Mapping[str, Threshold]], tuple[Row, ...]]
    present: Collection[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A library, or the decode kernels, with their gates.

    ``inputs``: its files, the first beside the gate's result. ``identity``: facts that must be the baseline's.
    ``accept``: the command that makes its figures the baseline. ``left_out``: gate -> reason why it has none.
    """

    inputs: tuple[Path, ...]
    identity: Callable[[], dict[str, str]]
    accept: str
    kinds: Mapping[str, Kind]
    left_out: Mapping[str, str]

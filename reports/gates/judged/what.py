"""What a gate's command needs to know of what it judges, whatever that is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from ckpm.reports.gates.baseline import Baseline, Figures
from ckpm.reports.gates.comparing import Threshold
from ckpm.reports.verdicts import Row

DECODE = "decode"  # the family of the kernels in decode, which are no library
DECODE_CYCLES = "timing_cycles_a_token"  # their metric of the timing model


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How one gate measures, and how it compares that with what was accepted.

    ``present``: the subjects, if they are known before anything is measured.
    """

    measure: Callable[[], Figures]
    rows: Callable[[Baseline, Figures, Mapping[str, Threshold]], tuple[Row, ...]]
    present: Collection[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """``inputs``: the files that it consists of, the first beside the gate's result. ``identity``: what its baseline
    must be of. ``accept``: the command that makes its figures the baseline. ``left_out``: gate -> why it has none.
    """

    inputs: tuple[Path, ...]
    identity: Callable[[], dict[str, str]]
    accept: str
    kinds: Mapping[str, Kind]
    left_out: Mapping[str, str]

"""The table of guarded Triton kernels: a YAML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, field

from ckpm.base.paths import IMPORTS
from ckpm.base.tablefile import Record, read_table
from ckpm.decode.guard.candidates import Constant
from ckpm.decode.guard.figures import KernelBudget
from ckpm.matrix.dialects import compute_units

BudgetName = Literal["vgpr", "vgpr_spills", "lds_bytes", "waves"]


class CaseRow(Record, frozen=True):
    """A case; types and constants that it leaves out are the kernel's."""

    signature: dict[str, str] = field(default_factory=dict)
    constexprs: dict[str, Constant] = field(default_factory=dict)


class KernelRow(CaseRow, frozen=True, kw_only=True):
    """A kernel of a table. Its ``configurations`` are those of its autotuner by default. Without ``cases`` it has one.

    ``file`` is a path from the table's folder, or ``ckpm/...`` for a file of this program. Types are written as Triton
    does. With ``breaks_budget`` it is a bad example: it fails the guard if it fits.
    """

    file: str
    function: str
    archs: Annotated[tuple[str, ...], Meta(min_length=1)]
    configurations: tuple[dict[str, Constant], ...] = ()
    cases: dict[str, CaseRow] = field(default_factory=dict)
    budget: dict[BudgetName, int]
    breaks_budget: bool = False


class GuardTable(Record, frozen=True):
    """A table. ``accepted`` is the file of the accepted figures, from the table's folder; names of kernels are free.

    ``softmax: {file: softmax.py, function: softmax_kernel, archs: [gfx950], signature: {x: "*bf16:16", columns: i32},
    configurations: [{BLOCK: 1024, num_warps: 4}], cases: {wide: {constexprs: {ROWS: 4}}}, budget: {vgpr: 128}}``
    """

    accepted: str
    kernels: Annotated[dict[str, KernelRow], Meta(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """A kernel of the table. Empty ``configurations`` stand for the configurations of the kernel's autotuner."""

    name: str
    file: Path
    function: str
    archs: tuple[str, ...]
    cases: tuple[CaseRow, ...]
    configurations: tuple[Mapping[str, Constant], ...]
    budget: KernelBudget
    breaks_budget: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedKernels:
    """A table of kernels. The file ``accepted`` need not exist yet."""

    file: Path
    accepted: Path
    kernels: tuple[Guarded, ...]


def read_guard_table(file: Path) -> GuardedKernels:
    """Read a table of guarded kernels."""
    table = read_table(file, GuardTable)
    for name, row in table.record.kernels.items():
        table.demand_known(row.archs, compute_units(), "kernels", name, "archs")
    kernels = tuple(_read_kernel(name, row, file.parent) for name, row in table.record.kernels.items())
    return GuardedKernels(file=file, accepted=file.parent / table.record.accepted, kernels=kernels)


def _read_kernel(name: str, row: KernelRow, folder: Path) -> Guarded:
    cases = tuple(row.cases.values()) or (CaseRow(),)
    return Guarded(
        name=name,
        file=(IMPORTS if row.file.startswith("ckpm/") else folder) / row.file,
        function=row.function,
        archs=row.archs,
        cases=tuple(
            CaseRow(signature=row.signature | case.signature, constexprs=row.constexprs | case.constexprs)
            for case in cases
        ),
        configurations=row.configurations,
        budget=KernelBudget(**row.budget),
        breaks_budget=row.breaks_budget,
    )

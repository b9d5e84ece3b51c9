"""The table of guarded Triton kernels: a YAML file beside the kernels that it names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.tablefile import Field, load
from ckpm.decode.guard.candidates import Constant
from ckpm.decode.guard.figures import Budget
from ckpm.matrix.dialects import compute_units

# The form of a table:
#   accepted: accepted.json            # the accepted figures, from this file's folder
#   kernels:
#     softmax:                         # a name of your own
#       file: softmax.py               # from this file's folder
#       function: softmax_kernel
#       archs: [gfx942, gfx950]
#       signature: {x: "*bf16:16", out: "*bf16:16", columns: i32}
#       constexprs: {ROWS: 1}
#       configurations: [{BLOCK: 1024, num_warps: 4}]   # left out: those of the kernel's autotuner
#       cases: {wide: {constexprs: {ROWS: 4}}, narrow: {}}   # left out: one case
#       budget: {vgpr: 128, vgpr_spills: 0, waves: 2}
#       breaks_budget: true            # left out: false. A bad example: it fails the guard if it fits
_FIELDS = (
    *("file", "function", "archs", "signature", "constexprs", "configurations", "cases", "budget", "breaks_budget"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Types and constants with which a kernel is compiled."""

    name: str
    signature: Mapping[str, str]
    constexprs: Mapping[str, Constant]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """A kernel of the table. ``configurations`` is empty if those of the kernel's autotuner are meant."""

    name: str
    file: Path
    function: str
    archs: tuple[str, ...]
    cases: tuple[Case, ...]
    configurations: tuple[Mapping[str, Constant], ...]
    budget: Budget
    breaks_budget: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """``accepted`` need not exist yet."""

    file: Path
    accepted: Path
    kernels: tuple[Guarded, ...]


def read_table(file: Path) -> Table:
    """Read a table. Raises TableError: a mistake in the file; the message names line and field."""
    root = load(file)
    root.allow(("accepted", "kernels"))
    kernels = tuple(_read_kernel(name, field, file.parent) for name, field in root.get("kernels").mapping().items())
    return Table(file=file, accepted=file.parent / root.get("accepted").text(), kernels=kernels)


def _read_kernel(name: str, field: Field, folder: Path) -> Guarded:
    field.allow(_FIELDS)
    signature, constexprs = _texts(field.find("signature")), _constants(field.find("constexprs"))
    cases, configurations = field.find("cases"), field.find("configurations")
    breaks = field.find("breaks_budget")
    return Guarded(
        name=name,
        file=folder / field.get("file").text(),
        function=field.get("function").text(),
        archs=tuple(_arch(one) for one in field.get("archs").items()),
        cases=tuple(_case(each, one, signature, constexprs) for each, one in cases.mapping().items())
        if cases
        else (Case(name="", signature=signature, constexprs=constexprs),),
        configurations=tuple(_constants(one) for one in configurations.items()) if configurations else (),
        budget=_budget(field.get("budget")),
        breaks_budget=breaks.boolean() if breaks else False,
    )


def _case(name: str, field: Field, signature: Mapping[str, str], constexprs: Mapping[str, Constant]) -> Case:
    """Read a case; fields that it leaves out are the kernel's."""
    field.allow(("signature", "constexprs"))
    return Case(
        name=name,
        signature={**signature, **_texts(field.find("signature"))},
        constexprs={**constexprs, **_constants(field.find("constexprs"))},
    )


def _arch(field: Field) -> str:
    if (arch := field.text()) not in compute_units():
        raise field.fail(f"unknown arch '{arch}'. Known: {', '.join(compute_units())}")
    return arch


def _budget(field: Field) -> Budget:
    names = ("vgpr", "vgpr_spills", "lds_bytes", "waves")
    field.allow(names)
    return Budget(**{name: field.get(name).integer() for name in names if field.find(name)})


def _texts(field: Field | None) -> dict[str, str]:
    return field.map(Field.text) if field else {}


def _constants(field: Field | None) -> dict[str, Constant]:
    return field.map(_constant) if field else {}


def _constant(field: Field) -> Constant:
    if field.value is None or isinstance(field.value, int | float | str | bool):
        return field.value
    raise field.fail("must be a number, text, true, false or null")

"""An instruction's fields and name, and the cells that every listing may read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from oracle import operands
from oracle.operands import SCC, VCC, State
from oracle.pcode import Cell, Scope, text_of


def view(inst: Any) -> Any:
    """The instruction's fields read once (tinygrad decodes a field on every access)."""
    if isinstance(inst, SimpleNamespace):
        return inst
    fields = {name: getattr(inst, name) for name, field in inst._fields if field is not None}
    extra = {"variant": type(inst).__name__, "operands": inst.operands, "raw": inst._raw, "bytes": inst.size()}
    return SimpleNamespace(**{**fields, **extra})


def bare_name(inst: Any) -> str:
    return str(inst.op.name).removesuffix("_E32").removesuffix("_E64")


def encoding(inst: Any) -> str:
    """VOP3_SDST -> VOP3, VOP2_LIT -> VOP2."""
    return str(inst.variant).split("_")[0]


def literal_of(inst: Any) -> int | None:
    value = getattr(inst, "literal", None)
    return None if value is None else int(value)


def listing_text(inst: Any) -> str:
    text = text_of(inst.op)
    if text is None:
        raise NotImplementedError(f"{inst.op.name} has no pseudocode")
    return text


def common_scope(state: State) -> Scope:
    scope = Scope(state.modes())
    scope.set("SCC", "u", 1, int(state.scalar[SCC]) & 1)
    scope.cells["VCC"] = Cell(64, state.pair(VCC), register=True)
    scope.cells["EXEC"] = Cell(64, state.exec, register=True)
    scope.cells["M0"] = Cell(32, int(state.scalar[operands.M0]), register=True)
    scope.cells["PC"] = Cell(64, state.pc, kind="i", register=True)
    scope.set("VCCZ", "u", 1, int(state.pair(VCC) == 0))
    scope.set("EXECZ", "u", 1, int(state.exec == 0))
    scope.set("WAVE_MODE.IEEE", "u", 1, int(state.ieee))
    scope.set("WAVE_STATUS.PRIV", "u", 1, 0)
    return scope

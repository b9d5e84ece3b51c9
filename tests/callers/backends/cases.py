"""The table cases.yaml, and what became of its cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ckpm.base.tablefile import Record, read_table
from conformance.stored import read
from tests.programs.conformance.tables import OUTCOMES

CALLERS = {"sglang": "SGLang", "vllm": "vLLM"}


class Case(Record, frozen=True, kw_only=True):
    """A row of cases.yaml, which describes the fields."""

    what: str
    heads: Sequence[int]
    dims: Sequence[int]
    lengths: Sequence[Sequence[int]]
    page: int = 16
    kv: str = "bf16"
    window: int = 0
    sinks: bool = False
    cap: float = 0.0
    drive: str = ""
    settings: Mapping[str, str] = {}
    calls: Mapping[str, str] = {}

    @property
    def absorbed(self) -> bool:
        """True if K is a cache of latents, of which V is the beginning."""
        return self.drive in ("mla-decode", "mla-extend")


class _Cases(Record, frozen=True):
    cases: dict[str, dict[str, Case]]


def cases(caller: str) -> dict[str, Case]:
    """The cases of a caller by name. Raises TableError."""
    return read_table(Path(__file__).with_name("cases.yaml"), _Cases).record.cases[caller]


def results() -> list[str]:
    """The lines of a Markdown table: each case, with its kernels, or the reason why aiter's function is called."""
    rows = ["| backend of | model and batch | served by, or falls through because |", "| --- | --- | --- |"]
    for caller, name in CALLERS.items():
        ran = read(OUTCOMES / f"caller-{caller}.yaml").archs["gfx950"]
        lacking = {
            case: why for accounts in (ran.unsupported, ran.wrong) for why, names in accounts.items() for case in names
        }
        for case_name, case in cases(caller).items():
            served = "; ".join(
                f"`{function}`: {', '.join(f'`{pattern}`' for pattern in patterns.split())}"
                for function, patterns in case.calls.items()
            )
            rows.append(f"| {name} | {case.what} | {lacking.get(f'test_{caller}[{case_name}]', served)} |")
    return rows

"""The steps of a first run on a GPU (reports/board/steps.yaml), and the claims that only hardware decides."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, structs

from ckpm.base.paths import data
from ckpm.base.tablefile import Record, Text, read_table
from ckpm.reports.release.stages import Stage, StageStep, StageTable, check_stages, steps

STEPS = data("reports", "board", "steps.yaml")
CLAIMS = data("reports", "board", "unproven.yaml")
SMOKE = "smoke"  # the tier of a rehearsal


class BoardStage(Stage, frozen=True, kw_only=True):
    """A step. The head of steps.yaml describes the fields."""

    question: Text
    minutes: Annotated[float, Meta(gt=0)]
    rehearsal: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    rocm: bool = False


class BoardTable(StageTable, frozen=True, kw_only=True):
    """The record of steps.yaml."""

    stages: dict[str, BoardStage]  # type: ignore[assignment]  # of StageTable, with more fields of each


class Claim(Record, frozen=True):
    """A claim, and the step that decides it by its cases, its verdict or its error against the model."""

    claim: Text
    risk: Literal["high", "middle", "low"]
    step: str
    expected: Text
    otherwise: Text
    cases: str = "*"
    against: tuple[Literal["failed", "error"], ...] = ("failed", "error")
    verdict: Literal["", "unchanged", "improved"] = ""
    largest_error: float = 0.0


class ClaimTable(Record, frozen=True):
    """The record of unproven.yaml."""

    claims: dict[str, Claim]


def read_steps() -> BoardTable:
    """Read and check the table of steps."""
    table = read_table(STEPS, BoardTable)
    check_stages(table)
    return table.record


def read_claims() -> dict[str, Claim]:
    """Read the claims by name; each step must exist."""
    table, stages = read_table(CLAIMS, ClaimTable), read_steps().stages
    for name, claim in table.record.claims.items():
        table.demand_known(claim.step, stages, "claims", name, "step")
    return table.record.claims


def plan_steps(table: BoardTable, arch: str, tier: str, *, rocm: bool) -> tuple[StageStep, ...]:
    """The steps for a board of an arch. ``rocm`` is True if ROCm's compiler is here."""
    chosen = {}
    for name, stage in table.stages.items():
        more = {word.partition("=")[0]: word for word in stage.rehearsal} if tier == SMOKE else {}
        if arch in (stage.archs or table.archs) and (rocm or not stage.rocm):
            command = (*(word for word in stage.command if word.partition("=")[0] not in more), *more.values())
            chosen[name] = structs.replace(stage, command=command)
    chosen_table = structs.replace(table, stages=chosen)
    return steps(chosen_table, (arch,), upstream=table.upstream, tier=tier, toolchain="embedded")


def claims_table(arch: str = "gfx950") -> str:
    """The claims as a table of Markdown: docs/reference/unproven.md contains it."""
    claims = read_claims().values()
    commands = {step.stage: step.shown for step in plan_steps(read_steps(), arch, "full", rocm=True)}
    lines = ["| claim | risk | step | expected | otherwise |", "| --- | --- | --- | --- | --- |"]
    for claim in claims:
        lines.append(f"| {claim.claim} | {claim.risk} | `{claim.step}` | {claim.expected} | {claim.otherwise} |")
    lines += ["", "| step | command on an MI350 |", "| --- | --- |"]
    decided = {"model", *(claim.step for claim in claims)}  # the model is beside published times
    lines += [f"| `{name}` | `{command}` |" for name, command in commands.items() if name in decided]
    return "\n".join(lines) + "\n"

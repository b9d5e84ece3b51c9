"""Selection of registered kernels: those that serve a problem, their order, and why the others don't serve.

A kernel's dtype, head dims, mask and other features decide if it serves a problem (matrix/problems). An order sorts the
kernels that serve. The order ``upstream`` leaves the choice to the library's own dispatch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ckpm.attention.registry import Instance
from ckpm.base.errors import NoKernelError, UsageError, unknown_word
from ckpm.kernels.families.backward import convert_dq
from ckpm.kernels.families.libraries import libraries, library_with
from ckpm.kernels.families.table import FAMILIES
from ckpm.matrix.keys import is_v3
from ckpm.matrix.problems.ledger import house_ledger, source
from ckpm.matrix.problems.problem import Problem, is_tile_taken, loads
from ckpm.matrix.problems.serving import match, missing_kernel

Heuristic = Callable[[Problem, Sequence[Instance]], Sequence[Instance]]


@dataclass(frozen=True, slots=True)
class Serving:
    """``instances`` serve the problem, by priority and then in the registry's order.

    ``reasons`` has a reason for each library of which no kernel serves; equal reasons once. Other libraries may have
    instances that serve.
    """

    instances: tuple[Instance, ...]
    reasons: tuple[str, ...]


def stages(family: str) -> tuple[str, ...]:
    """The families of a library, in the order in which a call of ``family`` runs their kernels."""
    if family not in FAMILIES:
        raise NoKernelError(f"no library has kernels of {family}. Those that have: {', '.join(FAMILIES)}.")
    return libraries()[library_with(family)]


def skips_stage(main: Instance, family: str) -> bool:
    """True if a launch with ``main`` runs no kernel of the stage ``family``.

    Kernels of dq_dk_dv for few queries write dQ in its last dtype, so that no kernel converts it.
    """
    return family == convert_dq.NAME and convert_dq.chain_key_of(main.key, spad=True) is None


def find_serving(family: str, instances: Sequence[Instance], problem: Problem) -> Serving:
    """The instances of a family that serve, and a reason for each library without any.

    Each library is searched separately, because its dispatch chooses among the library's own head dims.
    """
    groups: dict[tuple[str, str], list[Instance]] = {}
    for instance in instances:
        if instance.key.family == family:
            groups.setdefault((str(instance.library), instance.upstream), []).append(instance)
    able: list[Instance] = []
    reasons: list[str] = []
    for group in groups.values():
        matched = match([instance.key for instance in group], problem)
        names = {key.name for key in matched.kernels}
        able += [instance for instance in group if instance.name in names]
        reasons += [matched.reason] if matched.reason else []
    return Serving(tuple(sorted(able, key=lambda instance: -instance.priority)), tuple(dict.fromkeys(reasons)))


def open_mask(problem: Problem, instances: Sequence[Instance]) -> tuple[Problem, Serving, str]:
    """The problem, the kernels that serve it, and a note.

    A problem without a mask may get a mask that is open on both sides. That is done if only kernels with a mask serve,
    or for sink logits, which V3 has only under masks.
    """
    serving = find_serving(problem.family, instances, problem)
    v3 = problem.sink_logits and not _has_v3(serving)
    if problem.mask == "no" and problem.family == "batch_prefill" and (v3 or not serving.instances):
        masked = replace(problem, mask="bottom_right")
        opened = find_serving(problem.family, instances, masked)
        if _has_v3(opened) or (opened.instances and not serving.instances):
            return (
                masked,
                opened,
                f"its mask is open: no kernel {'of V3 ' if serving.instances else ''}without a mask serves",
            )
    return problem, serving, ""


def _has_v3(serving: Serving) -> bool:
    return any(is_v3(instance.key.pipeline) for instance in serving.instances)


def known_defect(instance: Instance, problem: Problem) -> str:
    """The known defect of CK that a problem would meet in a kernel, as a reason against it; "" without one."""
    entry = house_ledger().find_for_call(problem, instance.name, source(instance.upstream, instance.dialect))
    if entry is None:
        return ""
    link = f" ({entry.link})" if entry.link else ""
    return f"known defect {entry.name} of {instance.upstream}: {entry.reason}{link}"


def to_keep(instance: Instance, problem: Problem) -> Iterator[tuple[str, bool]]:
    """Yield conditions for a caller's data under which known defects of CK in the kernel do no harm.

    With each is True if calls with arrays of the host ensure it themselves.
    """
    entries = house_ledger().find_to_keep(problem, instance.name, source(instance.upstream, instance.dialect))
    for entry in entries:
        yield f"{entry.keep} (known defect {entry.name} of {instance.upstream})", entry.host_calls_keep


def refusal(instance: Instance, problem: Problem) -> str:
    """The reason why one kernel doesn't serve; "" if it does."""
    family = instance.key.family
    if instance.arch != problem.arch:
        return f"it is for {instance.arch}, not for {problem.arch}"
    if family not in stages(problem.family):
        return f"it is of {family}, which no call of {problem.family} runs"
    reason = missing_kernel([instance.key], problem).replace(" among 1 that fit otherwise", "")
    return reason or known_defect(instance, problem)


# Orders among kernels that serve


def first_fit(problem: Problem, able: Sequence[Instance]) -> Sequence[Instance]:
    """The registry's order: by priority, then as they were added."""
    return able


def seqtune(problem: Problem, able: Sequence[Instance]) -> Sequence[Instance]:
    """Sort by priority, then by tile: the smallest that holds all queries is first, or the largest if none does.

    CK's fwd chooses its tuned tiles in this way (codegen/ops/fmha_fwd.py, property seqtune).
    """

    def bucket(instance: Instance) -> tuple[bool, int]:
        rows = instance.key.tile.bm0
        holds = problem.seqlen_q <= rows
        return not holds, rows if holds else -rows

    return sorted(able, key=lambda instance: (-instance.priority, bucket(instance)))


def same_in_every_batch(able: Sequence[Instance]) -> Sequence[Instance]:
    """One kernel: the first whose tile dispatch takes for any number of blocks, or the first of all if there is none.

    Lengths, batch and compute units don't matter, because one launch has one tile for all its sequences. A kernel with
    a known defect is kept, because the defect may depend on the longest sequence of the batch.
    """
    return tuple(
        able[: next((at + 1 for at, instance in enumerate(able) if instance.key.tile.when == "always"), 1)][-1:]
    )


def reach_every_pool(able: Sequence[Instance], problem: Problem) -> Sequence[Instance]:
    """Leave out kernels of 32-bit loads that have a twin of 64-bit loads.

    At a launch by name no selector checks if 32-bit loads reach the pool's address.
    """
    if problem.family != "batch_prefill" or "gload" not in loads(problem):
        return able
    wide = {(instance.upstream, instance.name) for instance in able if instance.key.load == "gload"}
    twin = {
        instance: (instance.upstream, instance.name.replace("_bload_", "_gload_"))
        for instance in able
        if instance.key.load == "bload"
    }
    return tuple(instance for instance in able if twin.get(instance) not in wide)


def tiles_for_blocks(able: Sequence[Instance], problem: Problem, compute_units: int) -> Sequence[Instance]:
    """Leave out tiles whose condition the launch does not meet, if there are others. A launch by name has none."""
    p = problem
    shape = p.batch, p.nhead_q, p.seqlen_q, compute_units
    return tuple(instance for instance in able if is_tile_taken(instance.key.tile.when, *shape)) or able


ORDERS: Mapping[str, Heuristic] = {"first-fit": first_fit, "seqtune": seqtune}
UPSTREAM = "upstream"  # a library's own dispatch, with upstream's order and conditions
MEASURED = "measured"  # by a tuning database
BATCH_INVARIANT = "batch-invariant"  # the same kernel for every batch (same_in_every_batch)
KNOWN = (UPSTREAM, *ORDERS, MEASURED, BATCH_INVARIANT)


def check_order(name: str) -> None:
    """Refuse an unknown order."""
    if name not in KNOWN:
        raise UsageError(unknown_word("order", name, KNOWN), kind="heuristic")


def by_heuristic(heuristic: Heuristic, problem: Problem, able: Sequence[Instance]) -> Sequence[Instance]:
    """Order the kernels that serve by a user's function, which returns some of them, the best first."""
    try:
        ordered = tuple(heuristic(problem, able))
    except Exception as error:  # the user's own code may raise anything
        raise UsageError(f"the heuristic failed: {type(error).__name__}: {error}.", kind="heuristic") from error
    if not ordered or any(instance not in able for instance in ordered):
        raise UsageError(
            f"the heuristic must return at least one of the {len(able)} kernels that it is given.", kind="heuristic"
        )
    return ordered

"""Make plans of problems: choose the registered kernel that serves, and explain why it was chosen."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ckpm.attention.jit.missing import compile_command, find_missing
from ckpm.attention.launch.c_abi import Library
from ckpm.attention.launch.device import Device
from ckpm.attention.launch.plan import LaunchPlan
from ckpm.attention.launch.workspaces import Workspaces
from ckpm.attention.plan_cache import PlanCache
from ckpm.attention.problems.validation import split_contradictions, validate
from ckpm.attention.registry import Compile, Instance, Registry
from ckpm.attention.selection import (
    BATCH_INVARIANT,
    MEASURED,
    ORDERS,
    UPSTREAM,
    Heuristic,
    by_heuristic,
    check_order,
    find_serving,
    known_defect,
    open_mask,
    reach_every_pool,
    refusal,
    same_in_every_batch,
    skips_stage,
    stages,
    tiles_for_blocks,
    to_keep,
)
from ckpm.attention.splitting import best_split
from ckpm.base.errors import CompileError, NoKernelError, UsageError, demand_type
from ckpm.kernels.families.libraries import host, library_with
from ckpm.kernels.families.table import FAMILIES
from ckpm.matrix.dialects import own_upstreams, upstreams
from ckpm.matrix.keys import is_split
from ckpm.matrix.problems.problem import Problem, needs_named_loads
from ckpm.matrix.problems.serving import missing_load, serving_kernels

if TYPE_CHECKING:
    from ckpm.attention.tuning import TuningDatabase


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The chosen instances, one for each stage, all of one library. ``note`` explains the choice if necessary.

    ``named``: exactly these kernels are launched. Otherwise the library chooses at launch, and ``stages`` are the
    expected kernels. ``keep`` lists conditions for the caller's data (known defects in matrix/ledger.yaml). ``problem``
    is the launched problem: the caller's, with the chosen split, an open mask, or an LSE that the plan drops.
    """

    stages: tuple[Instance, ...]
    problem: Problem
    order: str
    named: bool
    note: str = ""
    keep: tuple[str, ...] = ()
    host_keep: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceExplanation:
    """The choice for a problem, None without one; ``refused`` has a reason for each other kernel."""

    problem: Problem
    choice: Choice | None
    refused: Mapping[Instance, str]

    def __str__(self) -> str:
        if self.choice is None:
            lines = ["no registered kernel serves the problem"]
        else:
            how = "by name" if self.choice.named else "as the expected kernel: the library decides at launch"
            lines = [f"{stage.name}\n  chosen {how}, order {self.choice.order}" for stage in self.choice.stages]
            lines += [f"  {self.choice.note}"] if self.choice.note else []
            lines += [f"  the caller's part: {condition}" for condition in self.choice.keep]
        return "\n".join([*lines, *(f"{instance.name}\n  {reason}" for instance, reason in self.refused.items())])


class Dispatcher:
    """Plans for problems on one device, kept by problem until the registry changes. Thread-safe.

    ``order`` is ``upstream`` (the library's own dispatch), ``first-fit``, ``seqtune``, ``measured`` (with ``tuning``),
    or a function that orders the kernels that serve a problem. ``batch-invariant`` sets :attr:`Problem.batch_invariant`
    for every problem. ``compile`` makes a library of declared kernels when no built kernel serves.
    """

    def __init__(
        self,
        registry: Registry,
        device: Device,
        *,
        order: str | Heuristic = UPSTREAM,
        tuning: TuningDatabase | None = None,
        compile: Compile | None = None,  # noqa: A002 - the name fits
    ) -> None:
        demand_type("registry", registry, Registry, "ckpm.Registry()")
        demand_type("device", device, Device, "ckpm.choose(...)'s device")
        if not callable(order):
            check_order(str(order))
        if order == MEASURED and tuning is None:
            raise UsageError("order 'measured' needs a tuning database: Dispatcher(..., tuning=...).", kind="heuristic")
        self.registry, self.device = registry, device
        self._order, self._tuning, self._compile = order, tuning, compile
        self._lock = threading.RLock()
        self.cache = PlanCache(registry)
        self._workspaces = Workspaces(device.hip)
        self._libraries: dict[Path, Library] = {}

    def plan(self, problem: Problem) -> LaunchPlan:
        """Return the plan of a problem. It is made at the first call.

        Raises:
            ProblemError: see ckpm.attention.problems.validation.validate.
            NoKernelError: no kernel serves the problem.
            UsageError: a custom order failed.
            LibraryError, TrustError: the library can't be opened.
        """
        problem = self._with_order(problem)
        try:
            plan = self.cache.entries.get(problem)
        except TypeError:  # a field has a value without a hash
            validate(problem)
            raise
        if plan is None:
            with self._lock:
                plan = self.cache.keep(problem, lambda: self._plan_or_refusal(validate(problem)))
        if not isinstance(plan, LaunchPlan):
            raise type(plan)(str(plan), kind=plan.kind)
        return plan

    def _plan_or_refusal(self, problem: Problem) -> LaunchPlan | NoKernelError | CompileError:
        """The plan of a problem, or its refusal, which is kept as well: a search or a compilation takes long."""
        try:
            return self._make_plan(problem)
        except (NoKernelError, CompileError) as refusal:
            return refusal.with_traceback(None)

    @property
    def reads_ahead(self) -> bool:
        """True if kernels of CK are registered, which read page lists past their end (matrix/ledger.yaml)."""
        return not self.registry.upstreams("batch_prefill") <= own_upstreams()

    @property
    def has_own(self) -> bool:
        """True if batch-prefill kernels of our own headers are built, or can be compiled."""
        there = self.registry.upstreams("batch_prefill", built=self._compile is None)
        return not there.isdisjoint(own_upstreams())

    @property
    def batch_invariant(self) -> bool:
        """True if the dispatcher makes every problem batch-invariant."""
        return self._order == BATCH_INVARIANT

    def why(self, problem: Problem) -> ChoiceExplanation:
        """Explain which kernel :meth:`plan` would choose, and why it passes over each other kernel.

        Nothing is compiled.

        Raises:
            ProblemError, UsageError: as :meth:`plan`.
        """
        original = problem = validate(self._with_order(problem))
        choice = None
        for built in (True, *((False,) if self._compile is not None else ())):
            result = self._search(problem, built=built)
            choice = choice or (result if isinstance(result, Choice) else None)
        chosen = {stage.identity for stage in choice.stages} if choice is not None else set()
        others = (instance for instance in self.registry.instances() if instance.identity not in chosen)
        split, why = self._split(problem)
        if choice is not None:  # its mask may be opened, and its LSE dropped
            mask, lse = choice.problem.mask, choice.problem.lse
            problem, split = (replace(posed, mask=mask, lse=lse) for posed in (problem, split))

        def against(instance: Instance) -> str:
            if not is_split(instance.key.pipeline):
                return refusal(instance, problem)
            return refusal(instance, split) if split.split_keys else why

        refused = {
            instance: against(instance) or _passed_over(instance, self._compile is not None) for instance in others
        }
        return ChoiceExplanation(problem=original, choice=choice, refused=refused)

    def close(self) -> None:
        """Forget all plans and free their workspaces."""
        with self._lock:
            self._workspaces.close()
            self.cache.forget()

    def _with_order(self, problem: Problem) -> Problem:
        demand_type("the problem", problem, Problem, "ckpm.Problem(...), or ProblemBuilder's build()")
        return replace(problem, batch_invariant=True) if self.batch_invariant else problem

    def _make_plan(self, problem: Problem) -> LaunchPlan:
        choice = self._search(problem, built=True)
        if not isinstance(choice, Choice):
            if self._compile is None:
                raise self._no_kernel(problem, choice, built=True)
            choice = self._compile_declared(self._compile, problem)
        return LaunchPlan(
            choice.problem, self.device, self._open_library(choice), stages=choice.stages, named=choice.named,
            keep=choice.keep, host_keep=choice.host_keep, shared=self._workspaces,
            dropped=("lse",) if choice.problem.lse and not problem.lse else (),
        )  # fmt: skip

    def _compile_declared(self, compile_kernels: Compile, problem: Problem) -> Choice:
        """Compile and register the declared kernels that serve, and choose again."""
        wanted = self._search(problem, built=False)
        if not isinstance(wanted, Choice):
            raise self._no_kernel(problem, wanted, built=False)
        for library in compile_kernels(wanted.stages):
            self.registry.add_library(library, priority=wanted.stages[0].priority)
        choice = self._search(problem, built=True)
        if not isinstance(choice, Choice):
            raise self._no_kernel(problem, choice, built=True)
        return choice

    def _no_kernel(self, problem: Problem, reason: str, *, built: bool) -> NoKernelError:
        """The error for a problem that no kernel serves. It names a kernel that would serve it."""
        missing = find_missing(problem, (instance.upstream for instance in self.registry.instances(problem.arch)))
        if isinstance(missing, str):
            against = f" ({missing})" if missing and missing not in reason else ""
            rounded = ", or give dtype='bf16' to round Q, K and V" if problem.dtype == "fp32" else ""
            remedy = f"No kernel of {', '.join(upstreams())} serves it either{against}: change the problem{rounded}."
        elif built:
            remedy = (
                f"Compile one: {compile_command(missing)}, and add the library in the folder that it prints "
                "(Registry.add_library)."
            )
        else:
            remedy = f"Declare {missing.name} of {missing.upstream}."
        state = "built" if built else "declared"
        return NoKernelError(f"no {state} kernel of {problem.family} serves the problem: {reason}. {remedy}")

    def _split(self, problem: Problem) -> tuple[Problem, str]:
        """The problem with the split of keys that the dispatcher chose, if any, and the reason."""
        none = "keys are not split: the problem has no split_keys"
        if problem.split_keys or problem.batch_invariant or self._order != UPSTREAM:
            return problem, none
        there = any(is_split(instance.key.pipeline) for instance in self.registry.instances(problem.arch))
        split = best_split(problem, self.device.compute_units) if there else None
        if not (split and split.keys):
            return problem, split.why if split else none
        posed = split.pose(problem)
        against = next(split_contradictions(posed), "")
        return (problem, f"keys are not split: {against}") if against else (posed, split.why)

    def _search(self, problem: Problem, *, built: bool) -> Choice | str:
        """Choose among built kernels, or among declared kernels. Return the reasons if none serves."""
        split, why = self._split(problem)
        if split is not problem:
            result = self._search_posed(split, built=built)
            if isinstance(result, Choice):
                return _add_note(result, why)
            why = f"keys are not split: {result}"
        whole = self._search_posed(problem, built=built)
        return _add_note(whole, why) if isinstance(whole, Choice) and split is not problem else whole

    def _search_posed(self, problem: Problem, *, built: bool) -> Choice | str:
        """Search as :meth:`_search`, with the problem's own split of keys."""
        stages(problem.family)  # raises for a family without libraries
        there = tuple(
            instance for instance in self.registry.instances(problem.arch) if (instance.library is not None) is built
        )
        problem, serving, mask = open_mask(problem, there)
        reaching = reach_every_pool(serving.instances, problem)
        able = serving.instances if self._order in (UPSTREAM, MEASURED) else reaching
        able = same_in_every_batch(reaching) if problem.batch_invariant else able
        defects = {instance: reason for instance in able if (reason := known_defect(instance, problem))}
        lacking = [*serving.reasons, *defects.values()]
        if problem.batch_invariant and defects:
            lacking.append("batch_invariant takes no other kernel instead: set the priority of one without the defect")
        sound = tuple(instance for instance in able if instance not in defects)
        ordered, order, named, note = self._order_kernels(problem, sound) if sound else ((), UPSTREAM, False, "")
        fit = tiles_for_blocks(reaching, problem, self.device.compute_units) if order == UPSTREAM else reaching
        for first in ordered:
            chosen, lack = _all_stages(first, there, problem)
            spoiled = any(instance.library == first.library for instance in defects)
            by_name = named or spoiled or not _dispatch_finds(first, there, problem)
            if not chosen:
                lacking.append(lack)
            elif not by_name or first in fit:
                conditions = [condition for instance in chosen for condition in to_keep(instance, problem)]
                choice = Choice(
                    stages=chosen,
                    problem=problem,
                    order=order,
                    named=by_name,
                    note=note,
                    keep=tuple(text for text, _ in conditions),
                    host_keep=tuple(text for text, ensured in conditions if not ensured),
                )
                return _add_note(choice, mask)
        if not (problem.lse or (problem.batch_invariant and serving.instances)):
            kept = self._search_posed(replace(problem, lse=True), built=built)
            if isinstance(kept, Choice):
                return _add_note(kept, "its LSE is dropped: no kernel without LSE serves")
        none = f"none of the {len(there)} registered for {problem.arch} is of {problem.family}"
        return "; ".join(dict.fromkeys(lacking)) or none

    def _order_kernels(self, problem: Problem, able: Sequence[Instance]) -> tuple[Sequence[Instance], str, bool, str]:
        """The kernels in order, the order's name, True if the first is taken by name, and a note."""
        if problem.batch_invariant:
            return able, BATCH_INVARIANT, True, "it is the same for every batch, number of blocks and of compute units"
        if callable(self._order):
            return by_heuristic(self._order, problem, able), getattr(self._order, "__name__", "heuristic"), True, ""
        if self._order in ORDERS:
            return ORDERS[self._order](problem, able), self._order, True, ""
        if self._order == MEASURED and self._tuning is not None:
            best = self._tuning.best(problem, self.device.kind, [instance.name for instance in able])
            if best is not None:
                wide = best.kernel.replace("_bload_", "_gload_")  # launches by name take 64-bit loads
                first = [instance for instance in able if instance.name in (best.kernel, wide)]
                return (
                    [*first, *able],
                    MEASURED,
                    True,
                    f"{best.value:g} {best.unit}, the least of {best.compared} measured",
                )
            return able, UPSTREAM, False, "nothing was measured for this problem: the library's own dispatch decides"
        return able, UPSTREAM, problem.tile_rows > 0, ""

    def _open_library(self, choice: Choice) -> Library:
        """The library of a choice, opened once."""
        path = choice.stages[0].library
        assert path is not None, "a built kernel has a library"
        if path not in self._libraries:
            named = host(library_with(choice.stages[0].key.family))
            self._libraries[path] = self.device.load(path, named.arguments, choice.stages[0].sha256)
        return self._libraries[path]


def _add_note(choice: Choice, note: str) -> Choice:
    """Add a note, if there is one, to a choice."""
    return replace(choice, note="; ".join(filter(None, (choice.note, note))))


def _all_stages(first: Instance, there: Sequence[Instance], problem: Problem) -> tuple[tuple[Instance, ...], str]:
    """``first`` and, of the same library, a kernel for each other stage; empty with the reason if one is missing."""
    chosen = []
    mates = [instance for instance in there if (instance.library, instance.upstream) == (first.library, first.upstream)]
    for family in stages(problem.family):
        if family == first.key.family:
            chosen.append(first)
            continue
        if skips_stage(first, family):
            continue
        beside = [
            instance
            for instance in mates
            if instance.key.family == family and FAMILIES[family].serves(instance.key, first.key)
        ]
        serving = find_serving(family, beside, problem)
        defects = [known_defect(instance, problem) for instance in serving.instances]
        if all(defects):
            return (), f"{family}: {'; '.join((*serving.reasons, *defects)) or 'no kernel of it is there'}"
        chosen.append(serving.instances[defects.index("")])
    return tuple(chosen), ""


def _dispatch_finds(first: Instance, there: Sequence[Instance], problem: Problem) -> bool:
    """Return False if the dispatch of the library of ``first`` may find no kernel where a launch may name one.

    Dispatch wants a load mode, and tiles for few blocks have a condition. A library without the load mode, or with
    no other tile, such as one that was compiled for one kernel, has nothing for a request that ``first`` serves.
    Dispatch judges a pool by its first head, so a kernel for heads with a larger stride is named.
    """
    library = host(library_with(first.key.family))
    if not library.arguments.BY_NAME:
        return True
    if first.library is None or (first.key.load == "gload" and needs_named_loads(problem)):
        return False  # it will be compiled alone, or dispatch may take its 32-bit twin
    keys = [instance.key for instance in there if instance.library == first.library]
    able = serving_kernels(keys, problem)
    return missing_load(keys, problem) is None and any(key.tile.when == "always" for key in able)


def _passed_over(instance: Instance, compiles: bool) -> str:
    if instance.library is not None:
        return "it serves, but ranks lower"
    return "it serves, and is only declared: built kernels come first" if compiles else "it serves, and is not built"

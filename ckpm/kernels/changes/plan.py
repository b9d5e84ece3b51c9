"""Plan for a change: the kernels, suites and gates it can touch, each with a reason, and the commands to run.

A file without a rule, or a state whose manifest can't be made, touches everything. A plan may hold too much, never too
little: tests/gate/test_planned_changes.py plants changes in tables, templates and headers to prove it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.display import show
from ckpm.base.files import write_atomically
from ckpm.base.paths import PROJECT
from ckpm.kernels.changes.history import changed_paths, commit_of, extract
from ckpm.kernels.changes.manifest import Altered, ManifestError, altered_kernels, altered_suites, manifests
from ckpm.kernels.changes.rules import Effect, PlannedCheck, Rules, rules
from ckpm.kernels.families.libraries import host, library_with
from ckpm.matrix.defects import defect_of
from ckpm.matrix.dialects import DEFAULT_FAMILY, dialect, dialect_names, upstreams
from ckpm.matrix.keys import Key
from ckpm.matrix.problems.asked import unasked_values
from ckpm.matrix.selection import Selection, select, take_shard
from ckpm.matrix.sessions import sessions

log = logging.getLogger(__name__)
SMOKE = "smoke"  # the tier that suites and gates run on: the default of every session


@dataclass(frozen=True, slots=True)
class Change:
    """A changed file and its effect by the rules."""

    path: str
    reason: str
    everything: bool


@dataclass(frozen=True, slots=True)
class Touched:
    """Kernels of a dialect's family that can come out differently: ``names``, or all of them if that is None."""

    dialect: str
    family: str
    archs: tuple[str, ...]
    names: frozenset[str] | None
    reasons: tuple[str, ...]

    def holds(self, name: str) -> bool:
        return self.names is None or name in self.names


@dataclass(frozen=True, slots=True)
class PlannedBuild:
    """A part of a library with touched kernels. ``kernels`` is their number, ``command`` builds the part."""

    arch: str
    upstream: str
    library: str
    shard: str
    kernels: int
    command: str
    minutes: int


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """Suites, and gates if any, of one library's smoke tier; ``command`` builds it and runs them."""

    arch: str
    upstream: str
    library: str
    suites: tuple[str, ...]
    gate: bool
    command: str
    minutes: int
    reasons: tuple[str, ...]


Planned = PlannedCheck | PlannedBuild | PlannedRun


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """A plan. ``checks`` and ``suites`` map each check and each suite to its reasons. ``commit`` is the id of REV.

    ``unasked`` has a line for each value of changed kernels that no problem of a suite asks for.
    ``commands`` is everything to run, in order: lines of shell, each with its planned minutes on two processors.
    """

    commit: str
    changes: tuple[Change, ...]
    everything: tuple[str, ...]
    kernels: tuple[Touched, ...]
    unasked: tuple[str, ...]
    suites: Mapping[str, tuple[str, ...]]
    gates: tuple[str, ...]
    checks: Mapping[str, tuple[str, ...]]
    check_commands: Mapping[str, str]
    builds: tuple[PlannedBuild, ...]
    runs: tuple[PlannedRun, ...]
    commands: Mapping[str, int]

    @property
    def archs(self) -> tuple[str, ...]:
        """The archs of all builds and runs."""
        return tuple(dict.fromkeys([*(build.arch for build in self.builds), *(run.arch for run in self.runs)]))


def plan_since(root: Path, revision: str) -> ChangePlan:
    """Plan for the difference between a revision and the working tree below ``root``."""
    commit = commit_of(root, revision)
    table = rules()
    changes = {path: table.effect(path) for path in changed_paths(root, commit)}
    try:
        altered, suites = _compare(root, commit, changes)
    except ManifestError as error:
        why = f"the tables can't be compared: {error}"
        return _plan(commit, {path: _widen(effect, why) for path, effect in changes.items()}, (), {}, table)
    return _plan(commit, changes, altered, suites, table)


def _widen(effect: Effect, why: str) -> Effect:
    return dataclasses.replace(effect, reason=f"{effect.reason}; {why}", everything=True) if effect.compare else effect


def _compare(root: Path, commit: str, changes: Mapping[str, Effect]) -> tuple[Sequence[Altered], Mapping[str, str]]:
    """Compare the manifests of both states, if any changed file needs it. Raises ManifestError."""
    compared = {effect.compare for effect in changes.values()}
    if not compared - {""}:
        return (), {}
    log.info("kernels and problems before and after the change are listed and compared: up to two minutes")
    with tempfile.TemporaryDirectory(prefix="ckpm-plan-") as name:
        folder = Path(name)
        extract(root, commit, folder)
        code = any(path.endswith(".py") for path, effect in changes.items() if effect.compare == "kernels")
        before, now = manifests(folder, root, code=code, problems="suites" in compared)
    suites = altered_suites(before.get("problems", {}), now.get("problems", {}))
    return altered_kernels(before["families"], now["families"]), suites


def _plan(
    commit: str, changes: Mapping[str, Effect], altered: Sequence[Altered], suites: Mapping[str, str], table: Rules
) -> ChangePlan:
    total = tuple(f"{path}: {effect.reason}" for path, effect in changes.items() if effect.everything)
    kernels = _touched_kernels(changes, altered, total)
    why_suites = {suite: list(total) for suite in sessions().suites}
    for path, effect in changes.items():
        for suite in effect.suites:
            why_suites[suite].append(f"{path}: {effect.reason}")
    for suite, reason in suites.items():
        why_suites[suite].append(reason)
    gates = total + tuple(f"{path}: {effect.reason}" for path, effect in changes.items() if effect.gates)
    checks = _checks(changes, total, table)
    builds = _builds(kernels, table)
    runs = _runs(kernels, why_suites, gates, table)
    rows: list[Planned] = [*(table.checks[name] for name in checks), *builds, *runs]
    return ChangePlan(
        commit=commit,
        changes=tuple(Change(path, effect.reason, effect.everything) for path, effect in changes.items()),
        everything=total,
        kernels=kernels,
        unasked=_unasked_lines(altered),
        suites={suite: tuple(reasons) for suite, reasons in _ran(why_suites, runs).items()},
        gates=gates or tuple(dict.fromkeys(reason for run in runs if run.gate for reason in run.reasons)),
        checks=checks,
        check_commands={name: table.checks[name].command for name in checks},
        builds=builds,
        runs=runs,
        commands={row.command: row.minutes for row in rows},
    )


def _unasked_lines(altered: Sequence[Altered]) -> tuple[str, ...]:
    """A line for each value of altered kernels that no problem of a suite asks for, with the dialect."""
    lines = []
    for alteration in altered:
        has_tables = host(library_with(alteration.family)).table_problems
        if has_tables and alteration.names and alteration.dialect in dialect_names():
            archs = _archs_of(alteration.dialect, alteration.family)
            keys = select(dialect(alteration.dialect), Selection(archs=archs))
            changed = [key for key in keys if key.name in alteration.names]
            lines += [f"{alteration.dialect}: {line}" for line in unasked_values(changed)]
    return tuple(dict.fromkeys(lines))


def _touched_kernels(
    changes: Mapping[str, Effect], altered: Sequence[Altered], total: Sequence[str]
) -> tuple[Touched, ...]:
    whole: dict[tuple[str, str], list[str]] = {}
    some: dict[tuple[str, str], set[str]] = {}
    reasons: dict[tuple[str, str], list[str]] = {}
    for name in dialect_names():
        for family in dialect(name).all_families():
            family_key = name, family.name
            own = [f"{path}: {effect.reason}" for path, effect in changes.items() if family.name in effect.families]
            whole[family_key] = [*total, *own]
    for alteration in altered:
        family_key = alteration.dialect, alteration.family
        reasons.setdefault(family_key, []).append(alteration.reason)
        if alteration.names is None:
            whole.setdefault(family_key, []).append(alteration.reason)
        else:
            some.setdefault(family_key, set()).update(alteration.names)
    result = []
    for family_key in dict.fromkeys((*whole, *some)):
        why = dict.fromkeys((*whole.get(family_key, ()), *reasons.get(family_key, ())))
        if why:
            names = None if whole.get(family_key) else frozenset(some[family_key])
            result.append(Touched(*family_key, _archs_of(*family_key), names, tuple(why)))
    return tuple(result)


def _archs_of(name: str, family: str) -> tuple[str, ...]:
    """The archs that a family has kernels for; none if it is gone."""
    families = {row.name: row for row in dialect(name).all_families()} if name in dialect_names() else {}
    return tuple(families[family].archs) if family in families else ()


def _checks(changes: Mapping[str, Effect], total: Sequence[str], table: Rules) -> dict[str, tuple[str, ...]]:
    checks: dict[str, tuple[str, ...]] = {}
    for name, check in table.checks.items():
        own = tuple(f"{path}: {effect.reason}" for path, effect in changes.items() if name in effect.checks)
        if check.always or total or own:
            checks[name] = ("every change",) if check.always else (*total, *own)
    return checks


def _builds(kernels: Sequence[Touched], table: Rules) -> tuple[PlannedBuild, ...]:
    """The shards of libraries that hold a touched kernel."""
    builds = []
    for library in table.libraries:
        for upstream in library.upstreams:
            name = upstreams()[upstream].dialect
            touched = {
                group.family: group for group in kernels if group.dialect == name and group.family in library.families
            }
            for arch, row in sessions().archs.items() if touched else ():
                if row.emulated and library.tier == SMOKE:
                    continue  # whatever runs there builds the same
                selection = Selection(archs=(arch,), families=library.families, tier=library.tier)
                keys = [key for key in select(dialect(name), selection) if defect_of(key, name) is None]
                for shard, count in _touched_shards(keys, touched, library.families, table.kernels_per_shard):
                    options = f"{_options(upstream, library.families)} --tier {library.tier}"
                    command = f"nox -s {_build(arch)} -- {options}" + ("" if shard == "1/1" else f" --shard {shard}")
                    builds.append(
                        PlannedBuild(arch, upstream, library.name, shard, count, command, library.shard_minutes)
                    )
    return tuple(builds)


def every_build(table: Rules) -> tuple[str, ...]:
    """Commands that compile every library of every plan, a line of shell each."""
    kernels = [
        Touched(name, family.name, _archs_of(name, family.name), None, ())
        for name in dialect_names()
        for family in dialect(name).all_families()
    ]
    shards = [build.command for build in _builds(kernels, table)]
    every = {suite: ["every"] for suite in sessions().suites}
    libraries = {(run.arch, run.upstream, run.library) for run in _runs(kernels, every, ["every"], table)}
    smoke = [
        _run_command(arch, upstream, library.families, (), gate=False)
        for library in table.libraries
        for arch, upstream, name in sorted(libraries)
        if name == library.name
    ]
    return (*smoke, *shards)


def _touched_shards(
    keys: Sequence[Key], touched: Mapping[str, Touched], families: Sequence[str], size: int
) -> list[tuple[str, int]]:
    """Shards with touched kernels, as (I/N, number of touched kernels). A shard has at most ``size`` kernels."""
    count = -(-len(keys) // size)
    if len(families) > 1:
        count = min(count, 1)  # a shard of one stage alone makes no library
    shards = []
    for index in range(1, count + 1):
        part = take_shard(keys, (index, count))
        if touched_count := sum(key.family in touched and touched[key.family].holds(key.name) for key in part):
            shards.append((f"{index}/{count}", touched_count))
    return shards


def _options(upstream: str, families: Sequence[str]) -> str:
    return f"--upstream {upstream}" + ("" if [*families] == [DEFAULT_FAMILY] else f" --family {','.join(families)}")


def _runs(
    kernels: Sequence[Touched], why_suites: Mapping[str, Sequence[str]], gates: Sequence[str], table: Rules
) -> tuple[PlannedRun, ...]:
    """Suites and gates of libraries with a touched kernel, and suites and gates that a changed file requires."""
    runs = []
    for library in table.libraries:
        for upstream in (*library.upstreams, *library.smoke_upstreams):
            name = upstreams()[upstream].dialect
            touched = [group for group in kernels if group.dialect == name and group.family in library.families]
            for arch in sessions().emulated:
                suites = tuple(suite for suite in library.suites if touched or why_suites[suite])
                gate = library.gates and bool(touched or gates)
                reasons = [reason for group in touched for reason in group.reasons]
                reasons += [reason for suite in suites for reason in why_suites[suite]] + list(gates if gate else ())
                smoke = Selection(archs=(arch,), families=library.families, tier=SMOKE)
                if (suites or gate) and select(dialect(name), smoke):
                    command = _run_command(arch, upstream, library.families, suites, gate=gate)
                    why = tuple(dict.fromkeys(reasons))
                    minutes = library.run_minutes
                    runs.append(PlannedRun(arch, upstream, library.name, suites, gate, command, minutes, why))
    return tuple(runs)


def _build(arch: str) -> str:
    """The session that builds the libraries of an arch."""
    return sessions().build.format(arch=arch)


def _run_command(arch: str, upstream: str, families: Sequence[str], suites: Sequence[str], *, gate: bool) -> str:
    """The command line of a smoke tier's build, its suites and its gates. nox goes on after a failure."""
    tier = f" --tier {SMOKE}" if upstreams()[upstream].default_tier else ""
    tests = [sessions().suites[suite].session.format(arch=arch) for suite in suites]
    line = " ".join([_build(arch), *tests, *([sessions().gate] if gate else [])])
    return f"nox -s {line} -- --arch {arch} {_options(upstream, families)}{tier}"


def _ran(why_suites: Mapping[str, Sequence[str]], runs: Sequence[PlannedRun]) -> dict[str, list[str]]:
    """The suites of all runs, each with its reasons."""
    by_suite: dict[str, list[str]] = {}
    for run in runs:
        for suite in run.suites:
            by_suite.setdefault(suite, []).extend(why_suites[suite] or run.reasons)
    return {suite: list(dict.fromkeys(reasons)) for suite, reasons in by_suite.items()}


_SHOWN = 3  # names and reasons in the text form; --json has all of them


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--since", required=True, metavar="REV", help="a commit, branch or tag to compare with")
    parser.add_argument("--json", action="store_true", help="everything, for programs")
    parser.add_argument("--output", type=Path, default=None, metavar="FILE", help="write it there, too, as JSON")
    parser.set_defaults(run=run, log_to="stderr")


def run(args: argparse.Namespace) -> None:
    """Print the plan, and write it to ``--output``."""
    plan = plan_since(PROJECT, args.since)
    if args.output:
        write_atomically(args.output, to_json(plan).encode())
    show(to_json(plan) if args.json else _text(plan), end="")


def to_json(plan: ChangePlan) -> str:
    """The plan as a document: the fields of Plan, sets as sorted lists."""
    document = {"archs": list(plan.archs), **dataclasses.asdict(plan)}
    return json.dumps(document, indent=1, default=sorted) + "\n"


def _text(plan: ChangePlan) -> str:
    lines = [f"{len(plan.changes)} changed files since {plan.commit[:12]}"]
    lines += [f"  {change.path}: {change.reason}" for change in plan.changes]
    if plan.everything:
        lines.append("kernels: all, of every dialect")
    else:
        listed = ["kernels, of both mask sets", *(_kernels(group) for group in plan.kernels)]
        lines += listed if plan.kernels else ["kernels: none"]
    lines += [f"note: {line}" for line in plan.unasked]
    if plan.suites:
        lines += ["suites", *(f"  {suite}: {_some(reasons)}" for suite, reasons in plan.suites.items())]
    else:
        lines.append("suites: none")
    lines.append(f"gates: {_some(plan.gates) or 'none'}")
    lines.append(f"archs: {', '.join(plan.archs) or 'none'}")
    lines += ["commands, with planned minutes on two processors"]
    lines += [f"{minutes:5d}  {command}" for command, minutes in plan.commands.items()]
    return "\n".join(lines) + "\n"


def _kernels(touched: Touched) -> str:
    names = "all" if touched.names is None else _some(sorted(touched.names), separator=", ")
    return f"  {touched.dialect} {touched.family}: {names} ({_some(touched.reasons)})"


def _some(texts: Sequence[str], separator: str = "; ") -> str:
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return separator.join(texts[:_SHOWN]) + more

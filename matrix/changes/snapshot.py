"""What one state of the repository says that a change could alter, as JSON on standard output.

Run as a script, ``python -I snapshot.py ROOT``: it imports the ``matrix`` of ROOT, which may be an older one, and
nothing else of ours. A line of standard input asks for sections, as JSON; a line is the answer. Sections, each with
what asks for it:

``tables`` (true)     tables as plain values, without comments and order: ``archs``, ``receipts``, ``upstreams``,
                      ``tiers``, ``profiles``, ``defects``, and ``dialects``: {dialect: {"head", "families": {...}}}
``kernels`` ([[dialect, family]])   {dialect: {family: {"rows": {name: digests of its fields}, "lists": {"TRAIT
                      RECEIPT MASKS": places of names in rows, in order of emission}, "archs": {arch: trait}}}}
``subsets`` ([[kind, name]])        kernels of a tier, profile or defect: {"KIND NAME": {dialect: {family: names}}}
``problems`` (true)   {suite: {tier: {name: digest of every field}}}
"""

from __future__ import annotations

import functools
import gc
import hashlib
import json
import sys
from collections.abc import Callable
from typing import Any

MASKS = ("simplified", "generic")


def plain(field: Any) -> Any:
    """A table's field as what JSON knows, without its file and line."""
    value = getattr(field, "value", field)
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value


def tables() -> dict[str, Any]:
    from ckpm.base.tablefile import load
    from ckpm.matrix.dialects import TABLES, dialect, dialect_names

    state: dict[str, Any] = {}
    for name in ("archs", "receipts", "upstreams", "tiers", "profiles", "defects"):
        state[name] = plain(load(TABLES / f"{name}.yaml").get(name))
    state["dialects"] = {}
    for name in dialect_names():
        head = plain(load(TABLES / "dialects" / name / "dialect.yaml"))
        families = {one.name: plain(dialect(name).table(one.name)) for one in dialect(name).all_families()}
        state["dialects"][name] = {"head": head, "families": families}
    return state


def kernels(wanted: list[list[str]]) -> dict[str, Any]:
    from ckpm.matrix.dialects import dialect

    digests: dict[str, Any] = {}
    for name, family in wanted:
        digests.setdefault(name, {})[family] = _family(dialect(name).family(family))
    return digests


def _family(family: Any) -> dict[str, Any]:
    """Every list of kernels that some arch, receipt and mask set gives; archs of one trait have the same."""
    from ckpm.matrix.enumeration import enumerate_keys

    by_traits = {_traits(traits): arch for arch, traits in family.archs.items()}
    rows: dict[str, set[str]] = {}
    place: dict[str, int] = {}
    seen: set[Any] = set()
    lists: dict[str, list[int]] = {}
    for traits, arch in by_traits.items():
        for receipt in _different_receipts(family):
            for mask in MASKS:
                keys = enumerate_keys(family, arch=arch, receipt=receipt, mask_impl=mask)
                lists[f"{traits} {receipt} {mask}"] = [place.setdefault(key.name, len(place)) for key in keys]
                new = set(keys) - seen
                seen |= new
                for key in new:
                    rows.setdefault(key.name, set()).add(_digest(key))
    ordered = {name: sorted(rows[name]) for name in place}
    return {"rows": ordered, "lists": lists, "archs": {arch: _traits(traits) for arch, traits in family.archs.items()}}


def _traits(traits: Any) -> str:
    """An arch's traits as a word. A state of before 22 November 2026 has one of them, as text."""
    return traits if isinstance(traits, str) else " ".join(traits)


def _different_receipts(family: Any) -> list[int]:
    """One receipt of each group that keeps the same; all of them if a rule asks for the number."""
    from ckpm.matrix.dialects import receipts

    if family.receipt_rules:
        return list(receipts())
    kept = {receipt: repr(family.receipts.get(receipt, family.default_receipt)) for receipt in receipts()}
    groups = {text: receipt for receipt, text in reversed(kept.items())}
    return sorted(groups.values())


def subsets(wanted: list[list[str]]) -> dict[str, Any]:
    from ckpm.matrix.dialects import dialect, dialect_names

    names_kept: dict[str, Any] = {}
    for kind, name in wanted:
        keeps = _membership(kind, name)
        for one in dialect_names():
            for family in dialect(one).all_families():
                names = sorted({key.name for key in _all_keys(family) if keeps(one, key)})
                names_kept.setdefault(f"{kind} {name}", {}).setdefault(one, {})[family.name] = names
    return names_kept


def _membership(kind: str, name: str) -> Callable[[str, Any], bool]:
    """Whether a dialect's key is in a subset; nothing is in one that this state does not have."""
    from ckpm.matrix.defects import defects
    from ckpm.matrix.selection import profiles, tiers
    from ckpm.matrix.where import compile_where

    if kind == "defect":
        own = [one for one in defects() if one.name == name]
        return lambda dialect, key: any((dialect, key.family) == (d.dialect, d.family) and d.holds(key) for d in own)
    texts = tiers().get(name, ()) if kind == "tier" else [profiles()[name]] if name in profiles() else []
    tests = [compile_where(text) for text in texts]
    return lambda one, key: any(test(key) for test in tests)


@functools.cache
def _all_keys(family: Any) -> list[Any]:
    """The keys of receipt 0 for every arch trait and mask set."""
    from ckpm.matrix.enumeration import enumerate_keys

    archs = {_traits(traits): arch for arch, traits in family.archs.items()}.values()
    lists = [enumerate_keys(family, arch=arch, mask_impl=mask) for arch in archs for mask in MASKS]
    return [key for one in lists for key in one]


def problems() -> dict[str, Any]:
    from ckpm.matrix.problems.case import SUITES, TIERS
    from ckpm.matrix.problems.tables import problems

    return {
        suite: {tier: {one.name: _digest(one) for one in problems(suite, tier)} for tier in TIERS} for suite in SUITES
    }


def _digest(record: object) -> str:
    return hashlib.sha256(repr(record).encode()).hexdigest()[:16]


def main() -> None:
    sys.path.insert(0, sys.argv[1])
    sys.dont_write_bytecode = True
    gc.disable()  # keys are kept to the end
    for line in sys.stdin:
        sys.stdout.buffer.write(json.dumps(_answer(json.loads(line))).encode() + b"\n")
        sys.stdout.flush()


def _answer(wanted: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    if "tables" in wanted:
        answer["tables"] = tables()
    if wanted.get("kernels"):
        answer["kernels"] = kernels(wanted["kernels"])
    if wanted.get("subsets"):
        answer["subsets"] = subsets(wanted["subsets"])
    if "problems" in wanted:
        answer["problems"] = problems()
    return answer


if __name__ == "__main__":
    main()

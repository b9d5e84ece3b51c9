"""Digests of each kernel's C++ text at a state of the repository, and the comparison of two states.

Run as a script, it prints the digests as JSON: ``python -I manifest.py ROOT WANTED``. It imports the ``ckpm`` of ROOT,
which may be an older one. WANTED is a JSON object: ``families``, a list of names or null for all, and ``problems``,
true or false.

The answer has ``kernels``, {"DIALECT FAMILY": {"shared": digest, "lists": {"TRAIT MASKS": {name: digest}}}}, and
``problems``, {suite: {name: digest}}. A kernel's digest covers its C++ text, its fields, and the receipts, tiers,
profiles and defects that hold it. The shared digest covers what all kernels of the family depend on. Names are in the
order of emission.
"""

from __future__ import annotations

import gc
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MASKS = ("simplified", "generic")
_SCRIPT = Path(__file__)


def kernels(wanted: Collection[str] | None) -> dict[str, Any]:
    from ckpm.matrix.dialects import dialect, dialect_names

    manifest = {}
    for name in dialect_names():
        subsets = _subsets(name)
        for family in dialect(name).all_families():
            if wanted is None or family.name in wanted:
                manifest[f"{name} {family.name}"] = {
                    "shared": _shared_digest(dialect(name), family),
                    "lists": _lists(name, family, subsets),
                }
    return manifest


def _shared_digest(dialect: Any, family: Any) -> str:
    from ckpm.matrix.dialects import archs, receipts, upstreams

    packages = [
        repr(package).replace(repr(package.summary), "")
        for package in upstreams().values()
        if package.dialect == dialect.name
    ]
    rows = [(name, traits, archs()[name]) for name, traits in family.archs.items()]
    head = [dialect.detection, dialect.known_archs, dialect.enumerators, dialect.targets, dialect.parameters]
    return _digest(repr([packages, rows, list(receipts()), head, dialect.asked_everything]))


def _lists(name: str, family: Any, subsets: list[tuple[str, Callable[[Any], bool]]]) -> dict[str, dict[str, str]]:
    from ckpm.kernels.families.libraries import host, library_with
    from ckpm.kernels.families.render import instance_text
    from ckpm.kernels.families.spellings import features
    from ckpm.kernels.families.table import FAMILIES
    from ckpm.matrix.enumeration import enumerate_keys, enumerate_names

    rendered = family.name in FAMILIES and host(library_with(family.name)).renders(name)
    spelled = features(name) if rendered else None
    lists: dict[str, dict[str, str]] = {}
    for trait, arch in {traits: arch for arch, traits in family.archs.items()}.items():
        for mask in MASKS:
            texts: dict[str, str] = {}
            held: dict[str, str] = {}  # the receipts of each kernel
            for group in _receipts(family):
                names = enumerate_names(family, arch=arch, receipt=group[0], mask_impl=mask)
                missing = not texts.keys() >= set(names)
                keys = enumerate_keys(family, arch=arch, receipt=group[0], mask_impl=mask) if missing else ()
                for key in (key for key in keys if key.name not in texts):
                    text = instance_text(key, spelled) if spelled else ""
                    texts[key.name] = f"{key} {[label for label, holds in subsets if holds(key)]} {text}"
                for kernel_name in names:
                    held[kernel_name] = f"{held.get(kernel_name, '')} {group}"
            lists[f"{trait} {mask}"] = {
                kernel_name: _digest(text + held[kernel_name]) for kernel_name, text in texts.items()
            }
    return lists


def _subsets(dialect: str) -> list[tuple[str, Callable[[Any], bool]]]:
    """Every tier, profile and defect with the predicate over its keys."""
    from ckpm.matrix.defects import defects
    from ckpm.matrix.selection import profiles, tiers
    from ckpm.matrix.where import any_of, compile_where

    subsets = [(f"tier {name}", any_of([compile_where(text) for text in texts])) for name, texts in tiers().items()]
    subsets += [(f"profile {name}", compile_where(text)) for name, text in profiles().items()]
    return subsets + [
        (f"defect {defect.name}", _defective(defect)) for defect in defects() if defect.dialect == dialect
    ]


def _defective(defect: Any) -> Callable[[Any], bool]:
    return lambda key: bool(key.family == defect.family and defect.holds(key))


def _receipts(family: Any) -> list[list[int]]:
    """Groups of receipts that keep the same kernels; each receipt alone if a rule depends on the number."""
    from ckpm.matrix.dialects import receipts

    groups: dict[str, list[int]] = {}
    for receipt in receipts():
        kept = str(receipt) if family.receipt_rules else repr(family.constraints(receipt))
        groups.setdefault(kept, []).append(receipt)
    return list(groups.values())


def problems() -> dict[str, dict[str, str]]:
    from ckpm.matrix.problems.case import SUITES, TIERS
    from ckpm.matrix.problems.tables import problems

    return {
        suite: {f"{tier} {problem.name}": _digest(repr(problem)) for tier in TIERS for problem in problems(suite, tier)}
        for suite in SUITES
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class ManifestError(Exception):
    """The manifest of a state can't be made; the message has the reason. A plan must then hold everything."""


@dataclass(frozen=True, slots=True)
class Altered:
    """Kernels of a dialect's family that a change alters, None for all of them; and the reason."""

    dialect: str
    family: str
    names: frozenset[str] | None
    reason: str


def manifests(
    before: Path, now: Path, families: Collection[str] | None, *, problems: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Make the manifests of two checkouts at once; see manifest.py for ``families`` and ``problems``.

    Raises:
        ManifestError: a table of one of them can't be read, or it is too old for manifest.py.
    """
    wanted = json.dumps({"families": None if families is None else sorted(families), "problems": problems})
    processes = [
        subprocess.Popen(
            [sys.executable, "-I", str(_SCRIPT), str(root), wanted], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for root in (before, now)
    ]
    answers = [process.communicate() for process in processes]
    for root, process, (_, errors) in zip((before, now), processes, answers, strict=True):
        if process.returncode != 0:
            last = errors.decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"]
            raise ManifestError(last[-1].replace(f"{root}/", ""))
    old, new = (json.loads(output) for output, _ in answers)
    return old, new


def altered_kernels(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Altered]:
    """Kernels whose text, fields, subsets, order or existence differ between two manifests."""
    altered = []
    for label in {**before, **now}:
        dialect, family = label.split()
        old, new = before.get(label), now.get(label)
        if old is None or new is None:
            altered.append(Altered(dialect, family, None, "it is gone" if new is None else "it was not there before"))
        elif old != new or any(
            list(old["lists"][list_name]) != list(names) for list_name, names in new["lists"].items()
        ):
            altered.append(Altered(dialect, family, *_difference(old, new)))
    return altered


def _difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[frozenset[str] | None, str]:
    """Kernels that differ between two manifests of a family, None for all of them; and the reason."""
    if old["shared"] != new["shared"] or set(old["lists"]) != set(new["lists"]):
        return None, "its archs, upstreams, receipts or detection"
    added, removed, changed = set[str](), set[str](), set[str]()
    for list_name, names in new["lists"].items():
        old_names = old["lists"][list_name]
        if [name for name in names if name in old_names] != [name for name in old_names if name in names]:
            return None, "the order of dispatch"
        added |= {*names} - {*old_names}
        removed |= {*old_names} - {*names}
        changed |= {name for name in names if name in old_names and names[name] != old_names[name]}
    counts = {"added": len(added), "removed": len(removed), "with another text or subset": len(changed)}
    return frozenset(added | removed | changed), ", ".join(f"{count} {what}" for what, count in counts.items() if count)


def altered_suites(before: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Suites with a problem that differs between two manifests, each with the number of these problems."""
    reasons = {}
    for suite, new in now.items():
        old = before.get(suite, {})
        names = {label.split()[1] for label in {**old, **new} if old.get(label) != new.get(label)}
        if names:
            reasons[suite] = f"{len(names)} problems of {suite} differ"
    return reasons


def main() -> None:
    sys.path.insert(0, sys.argv[1])
    sys.dont_write_bytecode = True
    gc.disable()  # keys are kept to the end
    wanted = json.loads(sys.argv[2])
    answer = {
        "kernels": kernels(wanted["families"]) if wanted["families"] != [] else {},
        "problems": problems() if wanted["problems"] else {},
    }
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()

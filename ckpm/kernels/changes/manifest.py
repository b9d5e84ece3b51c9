"""Digests of what each kernel is rendered from and of its C++ text, and the comparison of two states of the repository.

Run as a script, it prints digests as JSON: ``python -I manifest.py ROOT WANTED``. It imports the ``ckpm`` of ROOT,
which may be an older one. WANTED is a JSON object of parts, each with its arguments:

- ``families``: {"DIALECT FAMILY": {"shared": digest, "tables": digest}}. The shared digest covers what all kernels of
  the family depend on. The other one covers the tables from which the family's kernels are listed and rendered.
- ``lists`` of some of these labels: {"DIALECT FAMILY": {"TRAIT MASKS": {name: digest}}}. A kernel's digest covers its
  C++ text, its fields, and the receipts, tiers, profiles and defects that hold it. Names are in the order of emission.
- ``problems``: {suite: {name: digest}}.
"""

from __future__ import annotations

import gc
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MASKS = ("simplified", "generic")
_SCRIPT = Path(__file__)


def families() -> dict[str, dict[str, str]]:
    from ckpm.matrix.dialects import dialect, dialect_names

    return {
        f"{name} {family.name}": {
            "shared": _shared_digest(dialect(name), family),
            "tables": _tables_digest(dialect(name), family),
        }
        for name in dialect_names()
        for family in dialect(name).all_families()
    }


def lists(*labels: str) -> dict[str, dict[str, dict[str, str]]]:
    from ckpm.matrix.dialects import dialect

    by_tables: dict[str, dict[str, dict[str, str]]] = {}  # dialects inherit families
    answer = {}
    for label in labels:
        name, family_name = label.split()
        family = dialect(name).family(family_name)
        tables = _tables_digest(dialect(name), family)
        if tables not in by_tables:
            by_tables[tables] = _lists(name, family)
        answer[label] = by_tables[tables]
    return answer


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


def _tables_digest(dialect: Any, family: Any) -> str:
    from ckpm.base.tablefile import plain

    parts = plain(dialect.table(family.name)), _features(dialect.name, family), _subsets(dialect.name, family)
    return _digest(repr((family.name, *parts)))


def _features(name: str, family: Any) -> Any:
    """The features of a dialect's C++; None if only the names of the family's kernels are known."""
    from ckpm.kernels.families.libraries import host, library_with
    from ckpm.kernels.families.spellings import features
    from ckpm.kernels.families.table import FAMILIES

    rendered = family.name in FAMILIES and host(library_with(family.name)).renders(name)
    return features(name) if rendered else None


def _lists(name: str, family: Any) -> dict[str, dict[str, str]]:
    from ckpm.kernels.families.render import instance_text
    from ckpm.matrix.enumeration import enumerate_keys, enumerate_names
    from ckpm.matrix.where import any_of, compile_where

    spelled = _features(name, family)
    subsets = [(label, any_of([*map(compile_where, texts)])) for label, texts in _subsets(name, family).items()]
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


def _subsets(dialect: str, family: Any) -> dict[str, Sequence[str]]:
    """Every tier, profile and defect with its expressions over keys, of which one must hold."""
    from ckpm.matrix.defects import defects
    from ckpm.matrix.selection import profiles, tiers

    own = [defect for defect in defects() if (defect.dialect, defect.family) == (dialect, family.name)]
    return {
        **{f"tier {name}": texts for name, texts in tiers().items()},
        **{f"profile {name}": (text,) for name, text in profiles().items()},
        **{f"defect {defect.name}": (defect.where,) for defect in own},
    }


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


def manifests(before: Path, now: Path, *, code: bool, problems: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Make the manifests of two checkouts at once: ``families`` and, if wanted, ``problems``.

    A family has ``lists`` if its tables differ between the checkouts, and if ``code`` that reads tables does.

    Raises:
        ManifestError: a table of one of them can't be read, or it is too old for manifest.py.
    """
    old, new = _answers(before, now, {"families": [], **({"problems": []} if problems else {})})
    listed = [
        label
        for label, digests in new["families"].items()
        if digests["shared"] == old["families"].get(label, {}).get("shared")
        and (code or digests != old["families"][label])
    ]
    if listed:
        for manifest, answer in zip((old, new), _answers(before, now, {"lists": listed}), strict=True):
            for label, names in answer["lists"].items():
                manifest["families"][label]["lists"] = names
    return old, new


def _answers(before: Path, now: Path, wanted: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """Run this file as a script in both checkouts at once."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-I", str(_SCRIPT), str(root), json.dumps(wanted)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for root in (before, now)
    ]
    answers = [process.communicate() for process in processes]
    for root, process, (_, errors) in zip((before, now), processes, answers, strict=True):
        if process.returncode != 0:
            last = errors.decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"]
            raise ManifestError(last[-1].replace(f"{root}/", ""))
    return [json.loads(output) for output, _ in answers]


def altered_kernels(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Altered]:
    """Kernels whose text, fields, subsets, order or existence differ between the families of two manifests."""
    altered = []
    for label in {**before, **now}:
        dialect, family = label.split()
        old, new = before.get(label), now.get(label)
        if old is None or new is None:
            altered.append(Altered(dialect, family, None, "it is gone" if new is None else "it was not there before"))
        elif old["shared"] != new["shared"]:
            altered.append(Altered(dialect, family, None, "its archs, upstreams, receipts or detection"))
        elif json.dumps(old.get("lists")) != json.dumps(new.get("lists")):  # names have an order
            altered.append(Altered(dialect, family, *_difference(old["lists"], new["lists"])))
    return altered


def _difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[frozenset[str] | None, str]:
    """Kernels that differ between two lists of a family, None for all of them; and the reason."""
    if set(old) != set(new):
        return None, "its arch traits"
    added, removed, changed = set[str](), set[str](), set[str]()
    for list_name, names in new.items():
        old_names = old[list_name]
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
    parts: dict[str, Callable[..., object]] = {"families": families, "lists": lists, "problems": problems}
    json.dump({part: parts[part](*arguments) for part, arguments in json.loads(sys.argv[2]).items()}, sys.stdout)


if __name__ == "__main__":
    main()

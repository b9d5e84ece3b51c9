"""Compare two states by their manifests: find the kernels and problems that a change alters."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MANIFEST = Path(__file__).with_name("manifest.py")


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
            [sys.executable, "-I", str(_MANIFEST), str(root), wanted], stdout=subprocess.PIPE, stderr=subprocess.PIPE
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
        elif old != new or any(list(old["lists"][one]) != list(names) for one, names in new["lists"].items()):
            altered.append(Altered(dialect, family, *_difference(old, new)))
    return altered


def _difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[frozenset[str] | None, str]:
    """Kernels that differ between two manifests of a family, None for all of them; and the reason."""
    if old["shared"] != new["shared"] or set(old["lists"]) != set(new["lists"]):
        return None, "its archs, upstreams, receipts or detection"
    added, removed, changed = set[str](), set[str](), set[str]()
    for one, names in new["lists"].items():
        theirs = old["lists"][one]
        if [name for name in names if name in theirs] != [name for name in theirs if name in names]:
            return None, "the order of dispatch"
        added |= {*names} - {*theirs}
        removed |= {*theirs} - {*names}
        changed |= {name for name in names if name in theirs and names[name] != theirs[name]}
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

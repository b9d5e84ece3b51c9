"""The static gate: what each kernel of a library needs of the hardware, read from its code objects.

The figures come from the library itself; its manifest only says which symbol is which kernel, and must fit. The mix of
the hot loop and the check of waits come from ``python -m emulator inspect``, which knows instructions: reports/ may not
import the emulator. The gate runs on no device: the same library gives the same figures everywhere.
"""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernels.code import code_object as codeobject
from matrix.base.errors import NameSyntaxError
from matrix.dialects import dialect
from matrix.families import Family
from matrix.keys import Key
from matrix.names import make_key, parse
from reports.errors import GateError
from reports.gates import baseline
from reports.gates.budgets import Budgets
from reports.gates.comparing import Threshold, compare
from reports.verdicts import Row

GATE = "static"
_ROOT = Path(__file__).parents[2]  # where `python -m emulator` is found
_FIGURES = (
    "vgpr", "agpr", "sgpr", "vgpr_spills", "sgpr_spills", "scratch_bytes", "lds_bytes", "text_bytes", "occupancy_waves",
)  # fmt: skip


def figures(library: Path, manifest: Mapping[str, Any], arch: str) -> dict[str, dict[str, float]]:
    """The figures of every kernel that the library has for the arch.

    ``loop_*`` count the instructions of the loop that holds the matrix instructions, ``wait_hazards`` the registers
    used before the load into them is waited for.

    Raises:
        CodeObjectError: the library can't be read, or holds no GPU code.
        GateError: it has no kernel for the arch, or manifest and library are of different builds.
    """
    images = codeobject.bundles(library).get(arch, ())
    found = {kernel.symbol: kernel for image in images for kernel in codeobject.kernels(image)}
    rows = {name: row["archs"][arch] for name, row in manifest["kernels"].items() if arch in row["archs"]}
    if not rows:
        raise GateError(f"{library}: no kernel for {arch}; the manifest is of {', '.join(manifest['archs'])}.")
    inspected = _inspect(library, arch)
    by_name = {}
    for name, row in rows.items():
        kernel = found.pop(row.get("symbol", ""), None)
        if kernel is None or kernel.text_sha256 != row.get("text_sha256"):
            what = "is not in the library" if kernel is None else "has other machine code in the library"
            raise GateError(f"{library}: {name} {what}: library and manifest are of two builds. Build again.")
        by_name[name] = {figure: float(getattr(kernel, figure)) for figure in _FIGURES}
        by_name[name] |= _code_figures(inspected, kernel.symbol, f"{library}: {name}")
    if found:
        raise GateError(f"{library}: {len(found)} kernels that its manifest doesn't know. Build again.")
    return by_name


def _inspect(library: Path, arch: str) -> dict[str, Any]:
    """By symbol, as emulator/inspection/inspect.py says. Raises GateError."""
    command = [sys.executable, "-m", "emulator", "inspect", str(library.absolute()), "--arch", arch]
    done = subprocess.run(command, capture_output=True, text=True, cwd=_ROOT, check=False)
    if done.returncode:
        raise GateError(f"{library}: its machine code can't be inspected:\n{done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _code_figures(inspected: Mapping[str, Any], symbol: str, where: str) -> dict[str, float]:
    """Raises GateError: no such kernel, or instructions in it that can't be judged."""
    found = inspected.get(symbol)
    if found is None:
        raise GateError(f"{where}: its machine code was not found by python -m emulator inspect.")
    if found["unknown"]:
        raise GateError(f"{where}: {found['unknown']} unknown instructions: what they do can't be judged.")
    loop = {f"loop_{name}": float(count) for name, count in found["loop"].items()}
    return {**loop, "wait_hazards": float(len(found["hazards"]))}


def keys(manifest: Mapping[str, Any]) -> dict[str, Key]:
    """The manifest's kernels as keys, for the selectors of budgets.

    Raises:
        UnknownDialectError, NameSyntaxError: a manifest of another version of this project.
    """
    masks = manifest["mask_impl"]
    found = {}
    for name in manifest["kernels"]:
        family = _family(manifest["dialect"], name)
        found[name] = make_key(family, {"mask_impl": masks, **parse(family, name, masks)}, name)
    return found


def _family(dialect_name: str, kernel: str) -> Family:
    """The family whose names begin like this one. Raises UnknownDialectError, NameSyntaxError."""
    beginnings = {family.grammar.partition("{")[0]: family for family in dialect(dialect_name).all_families()}
    fitting = [beginning for beginning in beginnings if kernel.startswith(beginning)]
    if not fitting:
        raise NameSyntaxError(f"{kernel}: no family of {dialect_name} names kernels so. Build again.")
    return beginnings[max(fitting, key=len)]


def rows(
    accepted: baseline.Baseline,
    found: baseline.Figures,
    thresholds: Mapping[str, Threshold],
    budgets: Budgets,
    manifest: Mapping[str, Any],
    *,
    arch: str,
    today: datetime.date,
) -> tuple[Row, ...]:
    """A row for each figure against the baseline, then one for each that is beyond a budget. Raises GateError."""
    known = {name: key for name, key in keys(manifest).items() if name in found}
    beyond = budgets.rows(known, found, thresholds, arch=arch, upstream=manifest["upstream"], today=today)
    return (*compare(GATE, accepted.figures, found, thresholds), *beyond)

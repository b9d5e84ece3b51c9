"""Read a built library for the gates: figures of its kernels' code, and counts of the files beside it.

decode.py makes the same record, :class:`JudgedLibrary`, of the decode kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ckpm.base import settings
from ckpm.base.errors import GateError, LibraryError, UsageError
from ckpm.kernels.families.libraries import build_command, host, is_default, libraries, made_of, option, whole
from ckpm.kernels.library.manifest import MANIFEST, Manifest, check_library
from ckpm.kernels.library.request import LIBRARY, folder_name
from ckpm.matrix.dialects import DEFAULT_FAMILY
from ckpm.matrix.keys import Key
from ckpm.matrix.options import chosen_upstream
from ckpm.matrix.problems.performance import performance_problems
from ckpm.matrix.problems.serving import missing_kernel
from ckpm.matrix.selection import as_options
from ckpm.reports.gates import baseline
from ckpm.reports.gates import emulated as emulated_gate
from ckpm.reports.gates.baseline import Commands, Figures
from ckpm.reports.gates.static import by_kernel
from ckpm.reports.resources import read_manifest
from ckpm.reports.verdicts import EMULATED, FAMILY, STATIC, SUITES
from ckpm.timing.measure import GATED_TIER, demand_counters
from ckpm.timing.model import machines, no_numbers

DECODE = "decode"  # the family of the kernels in decode, which are not a library


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFigures:
    """Figures of a gate, and notes for the rows of some of their subjects."""

    figures: Figures
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedLibrary:
    """A library, or the decode kernels, with their gates.

    ``inputs``: its files, the first beside the gate's result. ``identity``: facts that must equal the baseline's.
    ``kernels``: subjects of the static gate. ``budgeted``: the manifest of a library, whose kernels have budgets.
    ``figures``: gate -> function that reads them from the library and the files beside it. ``left_out``: gate -> reason
    why it has none.
    """

    inputs: tuple[Path, ...]
    identity: Mapping[str, str]
    commands: Commands
    kernels: Collection[str]
    budgeted: Manifest | None
    figures: Mapping[str, Callable[[], GateFigures]]
    left_out: Mapping[str, str]


def left_out(library: Path, name: str, arch: str, keys: Collection[Key]) -> dict[str, str]:
    """Gates that the library of these kernels can't have, with the reasons."""
    if not host(name).table_problems:
        return dict.fromkeys((EMULATED, SUITES), f"its problems are batch prefill's, not those of {name}")
    reasons = {SUITES: emulated_gate.no_suite_counts(library)}
    if arch not in machines():
        reasons[EMULATED] = no_numbers(arch)
    elif all(missing_kernel(keys, problem) for problem in performance_problems(GATED_TIER)):
        reasons[EMULATED] = "no kernel of this library serves a problem of matrix/performance.yaml"
    return {gate: reason for gate, reason in reasons.items() if reason}


def _library_name(families: str | None) -> str:
    """Name of the library that the families make; UsageError if they make none."""
    if name := made_of(whole(tuple((families or DEFAULT_FAMILY).split(",")))):
        return name
    choices = ", ".join(f"--family {','.join(members)}" for members in (*libraries().values(), (DECODE,)))
    raise UsageError(f"--family {families}: no library is made of them. Known: {choices}.")


def gated_library(arch: str, upstream: str | None, families: str | None, work: Path) -> JudgedLibrary:
    """Read the library of these options, which must match the sha256 in its manifest."""
    upstream, name = chosen_upstream(upstream, settings.ck_root()), _library_name(families)
    file = work / "build" / arch / folder_name(upstream, name) / MANIFEST
    manifest = read_manifest(file, build_command([arch], upstream, name))
    if manifest.upstream != upstream:  # its figures would be compared with, or stored as, another upstream's
        raise GateError(f"{file}: a library of {manifest.upstream}, not of {upstream}. Build {upstream} first.")
    library = file.with_name(LIBRARY)
    if not library.is_file():  # else counters of it, which may be there, would be judged
        raise LibraryError(f"{library}: no such file. {manifest.remedy}", kind="no-library")
    check_library(library, manifest)
    own = {} if is_default(name) else {FAMILY: name}
    accept = " ".join((Commands().accept, "--arch", arch, "--upstream", manifest.upstream, *option(name)))
    return JudgedLibrary(
        inputs=(file, library),
        identity={**baseline.identity_of(manifest, arch), **own},
        commands=Commands(
            accept=accept, build=lambda selection: f"ckpm build --upstream {upstream} {as_options(selection)}"
        ),
        kernels=manifest.kernels,
        budgeted=manifest,
        figures={
            STATIC: lambda: GateFigures(figures=by_kernel(library, manifest, arch)),
            EMULATED: lambda: _emulated_figures(library, manifest, arch),
            SUITES: lambda: GateFigures(figures=emulated_gate.count_suite(library)),
        },
        left_out=left_out(library, name, arch, manifest.keys(tuple(manifest.kernels))),
    )


def _emulated_figures(library: Path, manifest: Manifest, arch: str) -> GateFigures:
    measured = demand_counters(library, manifest, arch)
    return GateFigures(figures=emulated_gate.by_problem(measured), notes=emulated_gate.notes(measured))

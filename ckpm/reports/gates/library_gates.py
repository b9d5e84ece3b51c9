"""Subjects of the gates: a built library, by its kernels' code and by counts of the problems on the emulator.

The decode kernels (decode.py) have the same interface.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ckpm.base import settings
from ckpm.base.errors import GateError, UsageError
from ckpm.kernels.families.libraries import host, is_default, libraries, made_of, option, whole
from ckpm.kernels.library.manifest import MANIFEST, Manifest, check_library
from ckpm.kernels.library.request import LIBRARY, folder_name
from ckpm.matrix.options import DEFAULT_FAMILY, chosen_upstream
from ckpm.reports.gates import baseline
from ckpm.reports.gates import emulated as emulated_gate
from ckpm.reports.gates import static as static_gate
from ckpm.reports.gates.baseline import Baseline, Figures
from ckpm.reports.gates.budgets import read_budgets
from ckpm.reports.gates.comparing import Threshold
from ckpm.reports.resources import read_manifest
from ckpm.reports.verdicts import FAMILY, VerdictRow
from ckpm.timing.model import machines, no_numbers

DECODE = "decode"  # the family of the kernels in decode, which are not a library
DECODE_CYCLES = "timing_cycles_a_token"  # the decode kernels' metric of the timing model


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Functions of one gate: measure figures, and compare them with the accepted ones.

    ``present``: the subjects, if they are known before anything is measured.
    """

    measure: Callable[[], Figures]
    rows: Callable[[Baseline, Figures, Mapping[str, Threshold]], tuple[VerdictRow, ...]]
    present: Collection[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedLibrary:
    """A library, or the decode kernels, with their gates.

    ``inputs``: its files, the first beside the gate's result. ``identity``: facts that must equal the baseline's.
    ``accept``: the command that makes its figures the baseline. ``left_out``: gate -> reason why it has none.
    """

    inputs: tuple[Path, ...]
    identity: Callable[[], dict[str, str]]
    accept: str
    kinds: Mapping[str, Kind]
    left_out: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedLibrary:
    """A library, its manifest, and the arch to judge."""

    library: Path
    library_name: str  # of ckpm.kernels.families.libraries
    manifest: Manifest
    arch: str

    def identity(self) -> dict[str, str]:
        """Facts that must equal the baseline's."""
        name = {} if is_default(self.library_name) else {FAMILY: self.library_name}
        return {**baseline.identity_of(self.manifest, self.arch), **name}

    def accept(self) -> str:
        """The command that makes its figures the baseline."""
        options = ["--arch", self.arch, "--upstream", self.manifest.upstream, *option(self.library_name)]
        return f"{baseline.ACCEPT} {' '.join(options)}"

    def to_judge(self, file: Path) -> JudgedLibrary:
        """The library as subjects of the gates. ``file`` is its manifest."""
        static = Kind(
            measure=lambda: static_gate.by_kernel(self.library, self.manifest, self.arch),
            rows=partial(_static_rows, self),
            present=self.manifest.kernels,
        )
        emulated = Kind(
            measure=lambda: emulated_gate.by_problem(emulated_gate.measure_library(self.library, self.arch)),
            rows=partial(_emulated_rows, self),
        )
        suites = Kind(
            measure=lambda: emulated_gate.count_suite(self.library),
            rows=lambda accepted, counts, _: emulated_gate.suite_rows(accepted, counts),
        )
        return JudgedLibrary(
            inputs=(file, self.library),
            identity=self.identity,
            accept=self.accept(),
            kinds={static_gate.GATE: static, emulated_gate.GATE: emulated, emulated_gate.SUITES: suites},
            left_out=left_out(self),
        )


def _static_rows(
    library: GatedLibrary, accepted: baseline.Baseline, figures: baseline.Figures, thresholds: Mapping[str, Threshold]
) -> tuple[VerdictRow, ...]:
    today = datetime.datetime.now(datetime.UTC).date()
    budgets = read_budgets(thresholds)
    return static_gate.rows(accepted, figures, thresholds, budgets, library.manifest, arch=library.arch, today=today)


def _emulated_rows(
    library: GatedLibrary, accepted: baseline.Baseline, figures: baseline.Figures, _: Mapping[str, Threshold]
) -> tuple[VerdictRow, ...]:
    return emulated_gate.rows(accepted, figures, emulated_gate.measure_library(library.library, library.arch))


def left_out(library: GatedLibrary) -> dict[str, str]:
    """Gates that the library can't have, with the reasons."""
    if not host(library.library_name).table_problems:
        why = f"its problems are batch prefill's, not those of {library.library_name}"
        return dict.fromkeys((emulated_gate.GATE, emulated_gate.SUITES), why)
    without_numbers = {} if library.arch in machines() else {emulated_gate.GATE: no_numbers(library.arch)}
    no_counts = emulated_gate.no_suite_counts(library.library)
    return without_numbers | ({emulated_gate.SUITES: no_counts} if no_counts else {})


def _library_name(families: str | None) -> str:
    """Name of the library that the families make, in any dialect."""
    if name := made_of(whole(tuple((families or DEFAULT_FAMILY).split(",")))):
        return name
    choices = ", ".join(f"--family {','.join(members)}" for members in (*libraries().values(), (DECODE,)))
    raise UsageError(f"--family {families}: no library is made of them. Known: {choices}.")


def gated_library(arch: str, upstream: str | None, families: str | None, work: Path) -> JudgedLibrary:
    """Read the library of these options, which must match the sha256 in its manifest."""
    upstream, name = chosen_upstream(upstream, settings.ck_root()), _library_name(families)
    file = work / "build" / arch / folder_name(upstream, name) / MANIFEST
    manifest = read_manifest(file)
    if manifest.upstream != upstream:  # its figures would be compared with, or stored as, another upstream's
        raise GateError(f"{file}: a library of {manifest.upstream}, not of {upstream}. Build {upstream} first.")
    library = file.with_name(LIBRARY)
    if library.is_file():  # a missing library is an error of whatever reads it later
        check_library(library, manifest)
    return GatedLibrary(library=library, library_name=name, manifest=manifest, arch=arch).to_judge(file)

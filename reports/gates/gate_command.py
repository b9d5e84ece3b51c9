"""``python -m reports gate|accept|history``: a built library against its accepted baseline, or as the new one.

Each gate of GATES measures subjects (kernels, problems) and compares with its own baseline file; the verdict is over
the rows of all of them.
"""

from __future__ import annotations

import argparse
import datetime
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernels.base import junit, settings
from kernels.base.files import locked
from kernels.build.manifest import MANIFEST, Manifest, check_library
from kernels.build.request import LIBRARY, folder_name
from kernels.families.libraries import host, is_default, libraries, made_of, option, whole
from matrix.base.display import show
from matrix.base.errors import UsageError
from matrix.base.outputs import refuse_inputs
from matrix.dialects import check_built_arch
from matrix.options import DEFAULT_ARCH, DEFAULT_FAMILY, add_library_options
from reports.errors import GateError
from reports.gates import baseline
from reports.gates import emulated as emulated_gate
from reports.gates import static as static_gate
from reports.gates.accepting import accept, complete
from reports.gates.budgets import read_budgets
from reports.gates.comparing import Threshold, read_thresholds
from reports.gates.history import steps
from reports.gates.model import machines
from reports.junit.write import write_gate
from reports.resources import read_manifest
from reports.verdicts import FAMILY, VERDICTS, Gate, Row, demand


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedLibrary:
    """A library, its manifest, and for which of its archs it is judged."""

    library: Path
    library_name: str  # of kernels.families.libraries
    manifest: Manifest
    arch: str

    def identity(self) -> dict[str, str]:
        """What its baseline must be of. Raises GateError."""
        name = {} if is_default(self.library_name) else {FAMILY: self.library_name}
        return {**baseline.identity_of(self.manifest, self.arch), **name}

    def accept(self) -> str:
        """The command that makes its figures the baseline."""
        words = ["--arch", self.arch, "--upstream", self.manifest.upstream, *option(self.library_name)]
        return f"{baseline.ACCEPT} {' '.join(words)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How one gate measures a library, and how it compares that with what was accepted."""

    measure: Callable[[GatedLibrary], baseline.Figures]
    rows: Callable[[GatedLibrary, baseline.Baseline, baseline.Figures, Mapping[str, Threshold]], tuple[Row, ...]]


def _static_rows(
    library: GatedLibrary, accepted: baseline.Baseline, figures: baseline.Figures, thresholds: Mapping[str, Threshold]
) -> tuple[Row, ...]:
    today = datetime.datetime.now(datetime.UTC).date()
    budgets = read_budgets(thresholds)
    return static_gate.rows(accepted, figures, thresholds, budgets, library.manifest, arch=library.arch, today=today)


def _emulated_rows(
    library: GatedLibrary, accepted: baseline.Baseline, figures: baseline.Figures, _: Mapping[str, Threshold]
) -> tuple[Row, ...]:
    return emulated_gate.rows(accepted, figures, emulated_gate.measured(library.library, library.arch))


GATES: Mapping[str, Kind] = {
    static_gate.GATE: Kind(
        measure=lambda built: static_gate.figures(built.library, built.manifest, built.arch), rows=_static_rows
    ),
    emulated_gate.GATE: Kind(
        measure=lambda built: emulated_gate.figures(emulated_gate.measured(built.library, built.arch)),
        rows=_emulated_rows,
    ),
}


def add_gate_options(gate: argparse.ArgumentParser) -> None:
    _add_options(gate)
    gate.add_argument("--output", type=Path, metavar="FILE", help="the result (default: gate.json beside the manifest)")
    gate.set_defaults(run=run_gate)


def add_accept_options(accept: argparse.ArgumentParser) -> None:
    _add_options(accept)
    accept.add_argument("--reason", required=True, metavar="TEXT", help="why these figures are right, for the history")
    accept.set_defaults(run=run_accept)


def add_history_options(history: argparse.ArgumentParser) -> None:
    _add_options(history)
    history.set_defaults(run=run_history)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arch", default=DEFAULT_ARCH, help="(default: %(default)s)")
    add_library_options(parser)
    parser.add_argument(
        "--family", default=None, metavar="NAMES", help="of the library, as built (default: batch_prefill)"
    )
    parser.add_argument("--work", type=Path, default=Path(), help="folder that holds build/ (default: here)")
    parser.add_argument("--only", choices=sorted(GATES), help="one gate instead of all")
    parser.add_argument(
        "--baselines", type=Path, default=baseline.FOLDER, metavar="FOLDER", help="(default: reports/baselines)"
    )


def run_gate(args: argparse.Namespace) -> None:
    """Judge a library; the result is written whatever it says.

    Raises:
        UnknownArchError, NoManifestError, ManifestError, CodeObjectError, TableError.
        GateError, RegressedError, InconclusiveError: it could not be compared, or does not pass.
    """
    library, file = _gated_library(args)
    output = args.output or file.with_name("gate.json")
    junit.clear(output, file, library.library)
    identity = library.identity()
    complete(identity, args.baselines)
    refuse_inputs(output, [baseline.place(identity, name, args.baselines) for name in _chosen(args, library)])
    thresholds = read_thresholds()
    rows: list[Row] = []
    provenance = dict(identity)
    for name in _chosen(args, library):
        place = baseline.existing(identity, name, args.baselines)
        try:
            accepted = baseline.read(place, library.accept())
            present = library.manifest.kernels if name == static_gate.GATE else None
            baseline.demand_same(accepted, identity, place, present, library.accept())
            rows += GATES[name].rows(library, accepted, GATES[name].measure(library), thresholds)
        except GateError as error:
            write_gate(_not_compared(name, str(error), provenance), output)  # the report must show it
            raise
        provenance[f"baseline_{name}"] = f"accepted for: {accepted.facts.get('reason', 'no reason')}"
        if identity["upstream"] == baseline.CHECKOUT:
            provenance[f"baseline_{name}_of"] = accepted.facts["upstream_identity"]
    left_out = _left_out(library)
    gate = Gate.of(rows, {**provenance, **{f"left_out_{name}": why for name, why in left_out.items()}})
    write_gate(gate, output)
    counts = Counter(row.verdict for row in gate.rows)
    show(f"{gate.verdict}: {', '.join(f'{counts[word]} {word}' for word in VERDICTS if counts[word])}; see {output}")
    for name, why in left_out.items():
        show(f"  left out: the {name} gate: {why}")
    for row in gate.rows:
        if row.verdict == "improved":
            show(f"  {row}")
    demand(gate, output)


def _not_compared(name: str, why: str, provenance: Mapping[str, str]) -> Gate:
    """The result of a gate that had nothing to compare with, or no figures."""
    row = Row(
        gate=name, subject="library", metric="comparison", unit="", baseline=None, candidate=None, threshold="",
        verdict="not comparable", note=why,
    )  # fmt: skip
    return Gate.of([row], provenance)


def run_accept(args: argparse.Namespace) -> None:
    """Store the library's figures as the baseline.

    Raises:
        UsageError: they would be stored where an installed ckpm keeps its own.
        UnknownArchError, NoManifestError, ManifestError, CodeObjectError, GateError, DiskFullError, OutputError.
    """
    if baseline.INSTALLED and args.baselines == baseline.FOLDER:
        raise UsageError(
            f"{baseline.FOLDER} belongs to the installed ckpm, whose next version replaces it. "
            "Choose a folder of your own with --baselines FOLDER, here and for the gate."
        )
    library, file = _gated_library(args)
    identity = library.identity()
    chosen = _chosen(args, library)
    measured = {name: GATES[name].measure(library) for name in chosen}  # all of them before the first is stored
    with locked(file.with_name(".accept.lock")):  # of two at once, the second would lose the first's line of history
        places = accept(identity, measured, args.reason, args.baselines)
    show("\n".join(map(str, places)))


def run_history(args: argparse.Namespace) -> None:
    """Print each gate's accepted baselines, each with the metrics whose sums changed there.

    Raises:
        UnknownArchError, NoManifestError, ManifestError, GateError.
    """
    library, _ = _gated_library(args)
    identity = library.identity()
    complete(identity, args.baselines)
    for name in _chosen(args, library):
        accepted = baseline.read_history(baseline.existing_history(identity, args.baselines))
        lines = [line for line in accepted if line.gate == name]
        changes = _changes(lines)
        for at, line in enumerate(lines):
            show(f"{line.date} {name}: {line.subjects} subjects: {line.reason}")
            for text in changes.get(at, ()):
                show(f"  {text}")


def _changes(lines: Sequence[baseline.Acceptance]) -> dict[int, list[str]]:
    """For each line of the history by its number: which metric's sum changed, from what to what."""
    changes: dict[int, list[str]] = {}
    for metric in dict.fromkeys(metric for line in lines for metric in line.sums):
        having = [(number, line.sums[metric]) for number, line in enumerate(lines) if metric in line.sums]
        for step in steps([value for _, value in having], noise=0):  # both gates count, they don't measure
            changes.setdefault(having[step.at][0], []).append(f"{metric}: {step.before:g} -> {step.after:g}")
    return changes


def _left_out(library: GatedLibrary) -> dict[str, str]:
    """The gates that such a library can't have, and why. Raises TableError."""
    if not host(library.library_name).table_problems:
        return {emulated_gate.GATE: f"its problems are batch prefill's, not those of {library.library_name}"}
    if library.arch not in machines():
        return {emulated_gate.GATE: f"the model knows nothing of {library.arch}: add it to reports/gates/model.yaml"}
    return {}


def _chosen(args: argparse.Namespace, library: GatedLibrary) -> list[str]:
    """The gates to run. Raises UsageError: the only one asked for is left out."""
    left_out = _left_out(library)
    if args.only in left_out:
        raise UsageError(f"--only {args.only}: {left_out[args.only]}.")
    return [args.only] if args.only else [name for name in GATES if name not in left_out]


def _library_name(families: str | None) -> str:
    """Which library the families make, in any dialect. Raises UsageError."""
    if name := made_of(whole(tuple((families or DEFAULT_FAMILY).split(",")))):
        return name
    known = ", ".join(f"--family {','.join(members)}" for members in libraries().values())
    raise UsageError(f"--family {families}: no library is made of them. Known: {known}.")


def _gated_library(args: argparse.Namespace) -> tuple[GatedLibrary, Path]:
    """The library to judge, and its manifest's path.

    Raises:
        NoManifestError, ManifestError, GateError, UsageError.
        LibraryMismatchError: its bytes are not those that the manifest lists.
    """
    check_built_arch(args.arch)
    upstream, name = settings.upstream(args.upstream, settings.ck_root()), _library_name(args.family)
    file = args.work / "build" / args.arch / folder_name(upstream, name) / MANIFEST
    manifest = read_manifest(file)
    if manifest.upstream != upstream:  # its figures would be compared with, or stored as, another upstream's
        raise GateError(f"{file}: a library of {manifest.upstream}, not of {upstream}. Build {upstream} first.")
    library = file.with_name(LIBRARY)
    if library.is_file():  # a missing library is an error of whatever reads it later
        check_library(library, manifest)
    return GatedLibrary(library=library, library_name=name, manifest=manifest, arch=args.arch), file

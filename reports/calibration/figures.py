"""Times of a GPU beside the model's and published figures: what model.yaml and references.yaml are checked by."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from ckpm.matrix.export import to_csv
from ckpm.reports.gates.model import Machine, estimate, machines
from ckpm.reports.gates.references import beside
from ckpm.reports.page.inputs import Inputs, LibraryResults, measured_seconds
from ckpm.reports.problems import flops, known_problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A problem that a GPU was timed on, with a warm cache. What nobody counted has no modelled time.

    Times are microseconds of a launch; ``ratio`` is measured over modelled; ``bound`` is the model's.
    """

    problem: str
    library: str
    arch: str
    measured_us: float
    measured_tflops: float | None
    modelled_us: float | None
    ratio: float | None
    bound: str


def timed(inputs: Inputs) -> tuple[Timed, ...]:
    """Every problem with a GPU's time, by library and arch. Raises GateError, TableError: as the model."""
    known = machines()
    return tuple(
        row
        for library in inputs.libraries
        for arch in library.manifest.archs
        for row in _of_library(inputs, library, arch, known.get(arch))
    )


def _of_library(inputs: Inputs, library: LibraryResults, arch: str, machine: Machine | None) -> Iterator[Timed]:
    counted = library.measured if library.measured and library.measured.provenance["arch"] == arch else None
    counts = {one.problem: one for one in counted.problems} if counted else {}
    for name, seconds in measured_seconds(inputs, library, arch).items():
        guess = estimate(counts[name], machine) if machine and name in counts else None
        problem = known_problems().get(name)
        yield Timed(
            problem=name,
            library=library.label,
            arch=arch,
            measured_us=seconds * 1e6,
            measured_tflops=flops(problem) / seconds / 1e12 if problem else None,
            modelled_us=guess.microseconds if guess else None,
            ratio=seconds * 1e6 / guess.microseconds if guess else None,
            bound=guess.bound if guess else "",
        )


def timed_csv(rows: tuple[Timed, ...]) -> str:
    return to_csv([field.name for field in dataclasses.fields(Timed)], [dataclasses.asdict(row) for row in rows])


_PUBLISHED = (
    "problem", "metric", "variant", "measured", "published", "unit", "ratio", "figure", "label", "document", "hardware",
    "rocm_there", "rocm_here",
)  # fmt: skip


def published_csv(inputs: Inputs) -> tuple[str, int]:
    """Measured figures beside published ones, and their number. Raises TableError."""
    rows = [
        {
            "problem": one.subject,
            "metric": one.reference.metric,
            "variant": one.reference.variant,
            "measured": one.measured,
            "published": one.reference.value,
            "unit": one.reference.unit,
            "ratio": one.ratio,
            "figure": one.reference.name,
            "label": one.reference.label,
            "document": one.reference.source.title,
            "hardware": one.reference.source.hardware,
            "rocm_there": one.reference.source.rocm,
            "rocm_here": one.rocm,
        }
        for gate in inputs.gates.values()
        for one in beside(gate)
    ]
    return to_csv(_PUBLISHED, rows), len(rows)

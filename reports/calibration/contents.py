"""What an archive holds, and what its results were measured on: a GPU, or the emulator that stands in for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpm.reports.calibration.figures import Timed
from ckpm.reports.page.inputs import Inputs
from ckpm.reports.verdicts import Gate

_GPU = "hip"  # a fact of results: the device of ROCm's runtime
_EMULATOR = "emulator"
_NONE = "no device"  # of a gate that only reads the library's code


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """``devices`` is by file what it was measured on; ``lacking`` is what calibration needs and nobody measured."""

    gpus: tuple[str, ...]
    devices: Mapping[str, str]
    cases_on_gpu: int
    problems_timed: int
    problems_timed_and_counted: int
    figures_beside_published: int
    lacking: tuple[str, ...]

    @property
    def headline(self) -> str:
        """In one sentence, which device the results are of."""
        if not self.gpus and not self.cases_on_gpu:
            return "no GPU was used: nothing in this archive was measured on one"
        names = ", ".join(self.gpus) or "a GPU that no result names"
        return (
            f"measured on {names}: {self.cases_on_gpu} cases of suites, {self.problems_timed} times of problems, of "
            f"which {self.problems_timed_and_counted} have counts for the model"
        )


def contents(inputs: Inputs, times: Sequence[Timed], published: int) -> Contents:
    """Of a folder's results, the GPU's times among them, and how many of these stand beside a published figure."""
    devices: dict[str, str] = {}
    cases = 0
    for library in inputs.libraries:
        for suite, results in library.suites.items():
            device = results.facts.get("device", "not said")
            devices[_name(inputs, library.results_file(suite))] = device
            cases += len(results.cases) if device == _GPU else 0
    gates = {_name(inputs, file): _device(gate) for file, gate in inputs.gates.items()}
    counted = sum(row.modelled_us is not None for row in times)
    return Contents(
        gpus=tuple(sorted({gpu for gpu in gates.values() if gpu not in (_EMULATOR, _NONE)})),
        devices={**devices, **gates},
        cases_on_gpu=cases,
        problems_timed=len(times),
        problems_timed_and_counted=counted,
        figures_beside_published=published,
        lacking=tuple(_lacking(cases, len(times), counted, published)),
    )


def _device(gate: Gate) -> str:
    gpu = gate.provenance.get("gpu", "")
    if gpu.startswith("emulated") or any(row.gate == "emulated" for row in gate.rows):
        return _EMULATOR
    return gpu or _NONE


def _name(inputs: Inputs, file: Path) -> str:
    return file.relative_to(inputs.folder).as_posix()


def _lacking(cases: int, times: int, counted: int, published: int) -> list[str]:
    lines = []
    if not cases:
        lines.append("no suite ran on a GPU: python -m suites --suite large-kv --device hip, and the other suites")
    if not times:
        lines.append("no problem was timed on a GPU: python -m reports compare --help")
    elif counted < times:
        lines.append(
            f"{times - counted} of {times} timed problems have no counts, which the model needs: "
            "python -m kernels measure --tier full --output build/ARCH/UPSTREAM/counters.json"
        )
    if times and not published:
        lines.append("none of the timed problems has a published figure of this GPU: compare with --tier nightly")
    return lines

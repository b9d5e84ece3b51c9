"""The decode kernels for the gates: their code objects, and counts of their problems on the emulator.

The emulated gate has counts, the gates' own model, and the timing model's cycles for each token, as
``ckpm decode compare`` prints them.
"""

from __future__ import annotations

from pathlib import Path

from ckpm.attention.launch.counters import Measurements
from ckpm.attention.launch.device import EmulatedDevice
from ckpm.decode import built as building
from ckpm.decode.built import BuiltDecode
from ckpm.decode.measuring import attention_figures, measure
from ckpm.decode.problem import problems
from ckpm.kernels.code import code_object
from ckpm.reports.gates import baseline
from ckpm.reports.gates.comparing import compare, read_thresholds
from ckpm.reports.gates.emulated import GATE as EMULATED
from ckpm.reports.gates.emulated import THRESHOLDS
from ckpm.reports.gates.emulated import by_problem as emulated_figures
from ckpm.reports.gates.library_gates import DECODE, DECODE_CYCLES, JudgedLibrary, Kind
from ckpm.reports.gates.static import GATE as STATIC
from ckpm.reports.gates.static import code_figures


def built(arch: str, work: Path) -> JudgedLibrary:
    """Read the files of ``nox -s build-decode`` for the arch."""
    file = building.manifest_path(work, arch)
    kernels_of = building.read(file, arch)
    files = tuple(sorted(file.parent.glob("*.hsaco")))
    static = Kind(
        measure=lambda: _static(kernels_of, file.parent),
        rows=lambda accepted, new, thresholds: compare(STATIC, accepted.figures, new, thresholds),
        present=kernels_of.stages,
    )
    emulated = Kind(
        measure=lambda: _count(kernels_of),
        rows=lambda accepted, new, _: compare(EMULATED, accepted.figures, new, read_thresholds(THRESHOLDS)),
    )
    return JudgedLibrary(
        inputs=(file, *files),
        identity=lambda: identity(kernels_of),
        accept=f"{baseline.ACCEPT} --arch {arch} --family {DECODE}",
        kinds={STATIC: static, EMULATED: emulated},
        left_out={},
    )


def identity(built: BuiltDecode) -> dict[str, str]:
    """Facts that must equal the baseline's. The kernels' text is left out, because the gate judges it."""
    return {
        "arch": built.arch,
        "toolchain": "triton",
        "identity": built.compiler,
        "upstream": DECODE,
        "upstream_identity": "kernels/decode of this repository",  # the folder's former name, which baselines contain
        "selection": ", ".join(built.stages),
    }


def _static(built: BuiltDecode, folder: Path) -> dict[str, dict[str, float]]:
    """Figures of each problem's attention kernel: of its code object and of its hot loop."""
    by_name = {}
    for problem in problems(built.arch):
        stages = built.stages[problem.name]
        own = attention_figures(stages, problem, built.arch).numbers()
        (kernel,) = code_object.kernels(stages.attention.binary)
        named = {("occupancy_waves" if name == "waves" else name): float(value) for name, value in own.items()}
        file = building.code_file(folder, problem.name, "attention")
        code = code_figures(code_object.inspect(file, built.arch), kernel.symbol, str(file))
        by_name[problem.name] = {**named, "text_bytes": float(kernel.text_bytes), **code}
    return by_name


def _count(built: BuiltDecode) -> dict[str, dict[str, float]]:
    """Count every problem on the emulator."""
    device = EmulatedDevice(built.arch)
    outcomes = {problem.name: measure(device, built.stages[problem.name], problem) for problem in problems(built.arch)}
    counted = Measurements(
        provenance={"arch": built.arch}, problems=tuple(outcome.counts for outcome in outcomes.values())
    )
    return {
        name: {**counts, DECODE_CYCLES: outcomes[name].cycles_a_token}
        for name, counts in emulated_figures(counted).items()
    }

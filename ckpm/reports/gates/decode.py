"""The decode kernels for the gates: their code objects, and counts of their problems on the emulator.

The emulated gate has counts, the gates' own model, and the timing model's cycles for each token, as
``ckpm decode compare`` prints them.
"""

from __future__ import annotations

from pathlib import Path

from ckpm.attention.launch.counters import COUNTERS
from ckpm.decode import built as building
from ckpm.decode.built import BuiltDecode
from ckpm.decode.measuring import attention_figures, demand_counters
from ckpm.decode.problem import problems
from ckpm.kernels.code import code_object
from ckpm.reports.gates.baseline import Commands
from ckpm.reports.gates.emulated import by_problem
from ckpm.reports.gates.library_gates import DECODE, GateFigures, JudgedLibrary
from ckpm.reports.gates.static import code_figures
from ckpm.reports.verdicts import EMULATED, STATIC


def built(arch: str, work: Path) -> JudgedLibrary:
    """Read the files of ``nox -s build-decode`` for the arch."""
    file = building.manifest_path(work, arch)
    kernels_of = building.read(file, arch)
    files = tuple(sorted(file.parent.glob("*.hsaco")))
    return JudgedLibrary(
        inputs=(file, *files),
        identity=kernels_of.identity(),
        commands=Commands(
            accept=f"{Commands().accept} --arch {arch} --family {DECODE}", build=lambda _: "nox -s build-decode"
        ),
        kernels=kernels_of.stages,
        budgeted=None,
        figures={
            STATIC: lambda: GateFigures(figures=_static(kernels_of, file.parent)),
            EMULATED: lambda: GateFigures(figures=by_problem(demand_counters(kernels_of, file.with_name(COUNTERS)))),
        },
        left_out={},
    )


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

"""The static gate: registers, LDS, spills, hot loop and hazards of each kernel, read from a library's code objects.

The figures come from the library itself. Its manifest only maps symbols to kernels, and must fit. The gate needs no
device: the same library gives the same figures everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ckpm.base.errors import GateError
from ckpm.kernels.code import code_object as codeobject
from ckpm.kernels.code.code_object import KernelCode
from ckpm.kernels.library.manifest import Manifest

_FIGURES = (
    "vgpr", "agpr", "sgpr", "vgpr_spills", "sgpr_spills", "scratch_bytes", "lds_bytes", "text_bytes", "occupancy_waves",
)  # fmt: skip


def by_kernel(library: Path, manifest: Manifest, arch: str) -> dict[str, dict[str, float]]:
    """The figures of every kernel that the library has for the arch.

    ``loop_*`` count the instructions of the loop with the matrix instructions. ``wait_hazards`` counts uses of
    registers and LDS without a wait for the load or write. ``missing_states`` counts instructions that follow too early
    on others (an s_nop is missing). If a key has several compiled kernels, each figure is the worst of theirs.
    """
    images = codeobject.bundles(library).get(arch, ())
    in_library = {kernel.symbol: kernel for image in images for kernel in codeobject.kernels(image)}
    listed = {name: kernel.resources_on(arch) for name, kernel in manifest.kernels.items() if arch in kernel.archs}
    if not listed:
        raise GateError(f"{library}: no kernel for {arch}; the manifest is of {', '.join(manifest.archs)}.")
    inspected = codeobject.inspect(library, arch)
    by_name = {}
    for name, rows in listed.items():
        several = []
        for row in rows:
            kernel = in_library.pop(row.symbol, None)
            if kernel is None or kernel.text_sha256 != row.text_sha256:
                what = "is not in the library" if kernel is None else "has other machine code in the library"
                raise GateError(f"{library}: {name} {what}: library and manifest are of two builds. {manifest.remedy}")
            own = {figure: float(getattr(kernel, figure)) for figure in _FIGURES}
            several.append(own | code_figures(inspected, kernel.symbol, f"{library}: {name}"))
        by_name[name] = _worst(several)
    if in_library:
        raise GateError(f"{library}: {len(in_library)} kernels that its manifest doesn't know. {manifest.remedy}")
    return by_name


def _worst(several: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Each figure's worst value among several kernels: the fewest waves, the most of everything else."""
    names = dict.fromkeys(name for figures in several for name in figures)
    return {
        name: (min if name == "occupancy_waves" else max)(figures.get(name, 0.0) for figures in several)
        for name in names
    }


def code_figures(inspected: Mapping[str, KernelCode], symbol: str, where: str) -> dict[str, float]:
    """Instructions of a kernel's hot loop, and its hazards."""
    code = inspected.get(symbol)
    if code is None:
        raise GateError(f"{where}: its machine code is not in the library.")
    if code.unknown:
        raise GateError(f"{where}: {code.unknown} unknown instructions: what they do can't be judged.")
    loop = {f"loop_{name}": float(count) for name, count in code.loop.items()}
    return {**loop, "wait_hazards": float(len(code.hazards)), "missing_states": float(len(code.missing_states))}

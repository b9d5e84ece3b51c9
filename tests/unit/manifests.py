"""A manifest.json as a build writes it, with few kernels, and the library that it lists."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ckpm.kernels.code.code_object import KernelResources
from ckpm.kernels.library.manifest import BuiltKernel, Manifest

LIBRARY_BYTES = b"a library"
FIGURES: dict[str, Any] = {
    "symbol": "k", "vgpr": 200, "agpr": 0, "sgpr": 100, "vgpr_spills": 0, "sgpr_spills": 0, "lds_bytes": 1024,
    "scratch_bytes": 0, "kernarg_bytes": 8, "max_workgroup": 256, "wavefront": 64, "text_sha256": "00",
    "text_bytes": 4096, "occupancy_waves": 2,
}  # fmt: skip


def document(kernels: Mapping[str, Any], **change: Any) -> dict[str, Any]:
    """The JSON of a library. ``kernels`` lists rows by name; an empty row stands for FIGURES on each arch."""
    archs = change.get("archs", ["gfx950"])
    listed = {
        name: {"unit": "u", "batch_invariant": True, "archs": dict.fromkeys(archs, FIGURES), **row}
        for name, row in kernels.items()
    }
    return {
        "library": "libckpm.so",
        "archs": archs,
        "upstream": "aiter",
        "upstream_identity": "amd-aiter 1",
        "dialect": "ck-2025-11",
        "mask_impl": "simplified",
        "selection": "tier smoke",
        "unit_size": 8,
        "left_out": {},
        "toolchain": "embedded",
        "identity": "embedded clang 1",
        "flags": "-O3",
        "link_flags": "-shared",
        "bf16": "compiler",
        "kernel_count": len(listed),
        "kernels": listed,
        "artifacts": {"libckpm.so": hashlib.sha256(LIBRARY_BYTES).hexdigest(), "obj/a.o": "00"},
        **change,
    }


def record(*kernels: str, **change: Any) -> Manifest:
    """The record of :func:`document`."""
    stored = document({name: {} for name in kernels}, **change)
    del stored["kernel_count"]
    resources = {arch: KernelResources(arch=arch, **FIGURES) for arch in stored["archs"]}
    built = {name: BuiltKernel(unit="u", batch_invariant=True, archs=resources) for name in kernels}
    return Manifest(**{**stored, "archs": tuple(stored["archs"]), "kernels": built})


def write_library(folder: Path, manifest: Mapping[str, Any]) -> Path:
    """Write a library and its manifest into a folder. Return the library's path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    library = folder / "libckpm.so"
    library.write_bytes(LIBRARY_BYTES)
    return library

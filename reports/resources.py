"""The table of a library's kernels with their resources, against the arch's budget."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from kernels.code.code_object import LIMITS
from reports.errors import ManifestError, NoManifestError

_FIGURES = (
    "vgpr", "agpr", "sgpr", "vgpr_spills", "sgpr_spills", "lds_bytes", "scratch_bytes", "occupancy_waves",
)  # fmt: skip


def read_manifest(file: Path) -> Mapping[str, Any]:
    """A manifest with every field that :func:`show` needs.

    Raises:
        NoManifestError: there is none.
        ManifestError: it can't be read, or a field is missing or of another kind.
    """
    if not file.exists():
        raise NoManifestError(f"{file}: no such manifest. Build first: python -m kernels build --help.")
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ManifestError(f"{file}: can't be read as a manifest: {error}. {_REMEDY}") from error
    found: Mapping[str, Any] = _expect(file, "the file", manifest, dict)
    for field, kind in (("archs", list), ("upstream", str), ("kernel_count", int), ("kernels", dict)):
        _expect(file, field, found.get(field), kind)
    for at, arch in enumerate(found["archs"]):
        if not isinstance(arch, str) or arch not in LIMITS:
            raise ManifestError(f"{file}: archs[{at}]: {arch!r} is none of {', '.join(LIMITS)}. {_REMEDY}")
    for name, row in found["kernels"].items():
        _expect(file, f"kernels.{name}", row, dict)
        _expect(file, f"kernels.{name}.archs", row.get("archs"), dict)
        for arch, figures in row["archs"].items():
            where = f"kernels.{name}.archs.{arch}"
            _expect(file, where, figures, dict)
            for figure in _FIGURES:
                _expect(file, f"{where}.{figure}", figures.get(figure), int)
    return found


_REMEDY = "Name a library's manifest.json, or build again."


def _expect(file: Path, where: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        what = "is missing" if value is None else f"is {str(value)[:40]!r}"
        raise ManifestError(f"{file}: {where}: {what}, expected {_KINDS[kind]}. {_REMEDY}")
    return value


_KINDS = {dict: "an object", list: "a list", str: "text", int: "a whole number"}


def show(manifest: Mapping[str, Any], console: Console) -> None:
    """One table for each arch: a row a kernel, marked where it spills, uses scratch or cannot be launched.

    VGPR counts the unified file (AGPR included) of 512; LDS is bytes a workgroup, scratch bytes a lane, waves those
    that fit one SIMD.
    """
    for arch in manifest["archs"]:
        limits = LIMITS[arch]
        title = f"{manifest['upstream']} on {arch}: {manifest['kernel_count']} kernels"
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        table.add_column("kernel", overflow="fold", min_width=40)
        for column in (f"VGPR/{limits.vgprs}", "AGPR", "SGPR", "V spills", "S spills", "LDS", "scratch", "waves"):
            table.add_column(column, justify="right", no_wrap=True)
        table.add_column("", no_wrap=True)
        for name, row in sorted(manifest["kernels"].items()):
            if figures := row["archs"].get(arch):
                table.add_row(_short(name), *_cells(figures))
        console.print(table)


def _short(name: str) -> str:
    """The name without what all rows share: the family, and the waves that follow from the block tile's kM0 x kN0."""
    name = re.sub(r"_r\d+x\d+x\d+_r\d+x\d+x\d+_w\d+x\d+x\d+_w\d+x\d+x\d+", "", name)
    return re.sub(r"_b(\d+x\d+)(?:x\d+){4}", r"_b\1", name.removeprefix("fmha_batch_prefill_"))


def _cells(figures: Mapping[str, Any]) -> list[str]:
    # an SGPR spills into a lane of a VGPR, a VGPR into memory: only the latter is a finding
    remarks = [
        word
        for word, true in (
            ("SPILLS", figures["vgpr_spills"] > 0),
            ("SCRATCH", figures["scratch_bytes"] > 0),
            ("TOO LARGE", figures["occupancy_waves"] == 0),
        )
        if true
    ]
    return [
        *(str(figures[field]) for field in _FIGURES),
        " ".join(remarks),
    ]

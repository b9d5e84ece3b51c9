"""A library's manifest, read with a check of every field that reports and the table of resources need."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernels.build.resources import FIGURES
from kernels.code.code_object import LIMITS
from reports.errors import ManifestError, NoManifestError


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
            for figure in FIGURES:
                _expect(file, f"{where}.{figure}", figures.get(figure), int)
    return found


_REMEDY = "Name a library's manifest.json, or build again."


def _expect(file: Path, where: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        what = "is missing" if value is None else f"is {str(value)[:40]!r}"
        raise ManifestError(f"{file}: {where}: {what}, expected {_KINDS[kind]}. {_REMEDY}")
    return value


_KINDS = {dict: "an object", list: "a list", str: "text", int: "a whole number"}

"""``kernels.txt``: a library's kernels with their fields as plain words, so that C++ needs no reader of JSON.

The first line has the format, the next ones describe the library; then a line for each kernel in dispatch order of its
manifest: ``kernel NAME field=value...``. No value holds a space.
"""

from __future__ import annotations

from pathlib import Path

from ckpm.attention.cpp.patterns import fields
from ckpm.base.errors import RecordError
from ckpm.base.files import write_if_changed
from ckpm.kernels.families.libraries import library_with
from ckpm.kernels.library.manifest import MANIFEST, Manifest, family_of
from ckpm.matrix.dialects import dialect

INDEX = "kernels.txt"
FORMAT = 1


def text(manifest: Manifest) -> str:
    """Text of the index. Raises RecordError: the manifest lists no kernel."""
    keys = manifest.keys()
    if not keys:
        raise RecordError(f"the {MANIFEST} of {manifest.upstream} lists no kernel. {manifest.remedy}")
    family = family_of(dialect(manifest.dialect), keys[0].name).name
    lines = [
        f"ckpm-kernels {FORMAT}",
        f"library {manifest.library}",
        f"made-with {library_with(family)}",
        f"upstream {manifest.upstream}",
        f"archs {','.join(manifest.archs)}",
    ]
    lines += [
        " ".join(["kernel", key.name, *(f"{name}={value}" for name, value in fields(key).items())]) for key in keys
    ]
    return "\n".join(lines) + "\n"


def write_index(folder: Path, output: Path | None = None) -> Path:
    """Write the index of a built library's folder, beside its manifest unless ``output`` names a file; its place.

    Raises:
        RecordError: no manifest, or a damaged one. DiskFullError, OutputError: it can't be written.
    """
    place = output or folder / INDEX
    write_if_changed(place, text(Manifest.read(folder / MANIFEST)))
    return place

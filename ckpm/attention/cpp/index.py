"""``kernels.txt``: a library's kernels with their fields as plain words, so that C++ needs no reader of JSON.

The first line contains the format, the next lines describe the library. Then comes a line for each kernel, in dispatch
order of the manifest: ``kernel NAME field=value...``. No value contains a space.

Patterns over kernels are the same in C++ and here: ``family=batch_prefill dtype=bf16 mask=no,mask lse=*``. Each word is
a condition, and all must hold. It names a field and its possible values; ``*`` is every value. The fields are a key's
(ckpm/matrix/keys.py); fields of its tile are written as ``tile.bm0``. A flag is ``true`` or ``false``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.errors import RecordError, did_you_mean
from ckpm.base.files import write_if_changed
from ckpm.kernels.families.libraries import library_with
from ckpm.kernels.library.manifest import MANIFEST, Manifest, family_of
from ckpm.matrix.dialects import dialect
from ckpm.matrix.keys import KEY_FIELDS, TILE_FIELDS, Key

_WORD = re.compile(r"([a-z0-9_.]+)=([^=\s]+)")
KNOWN = tuple(name for name in (*KEY_FIELDS, *(f"tile.{part}" for part in TILE_FIELDS)) if name not in ("tile", "name"))


def fields(key: Key) -> dict[str, str]:
    """A key's fields as patterns compare them. Fields that its family lacks are left out."""
    row = {name: value for name, value in key.row().items() if name in KNOWN and value not in (None, "")}
    return {name: _text(value) for name, value in row.items() if value != 0 or not name.startswith("tile.")}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class Pattern:
    """``conditions`` are fields with the values that they may have; () is every value."""

    conditions: Mapping[str, tuple[str, ...]]

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """Parse a pattern. Raise ValueError, with the word, for a wrong condition or a field that keys lack."""
        conditions: dict[str, tuple[str, ...]] = {}
        for word in text.split():
            match = _WORD.fullmatch(word)
            if match is None:
                raise ValueError(f"'{word}' is not FIELD=VALUE")
            name, values = match[1], tuple(match[2].split(","))
            if name not in KNOWN:
                hint = did_you_mean(name, KNOWN)
                raise ValueError(f"'{name}' is not a field of a kernel{hint} Known: {', '.join(KNOWN)}")
            if name in conditions:
                raise ValueError(f"'{name}' stands there twice; write its values as {name}=A,B")
            if "" in values:
                raise ValueError(f"'{word}' has an empty value")
            conditions[name] = () if "*" in values else values
        return cls(conditions)

    def fits(self, key: Key) -> bool:
        key_fields = fields(key)
        return all(
            name in key_fields and (not values or key_fields[name] in values)
            for name, values in self.conditions.items()
        )


INDEX = "kernels.txt"
FORMAT = 1


def text(manifest: Manifest) -> str:
    """Text of the index."""
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
    """Write the index of a built library to ``output``, by default next to its manifest. Return the path."""
    file = output or folder / INDEX
    write_if_changed(file, text(Manifest.read(folder / MANIFEST)))
    return file

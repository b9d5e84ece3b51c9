"""Writes clang's offload bundles, the container of one code object for each arch inside a host object.

Run as a program it stands in for ``clang-offload-bundler``, which clang's HIP driver calls and the embedded toolchain
lacks: ``-type=o -bundle-align=N -targets=A,B -input=FILE -input=FILE -output=FILE``. It imports the standard library
alone, because it then runs isolated (``python -I -S``).

The format is that of clang's documentation, "Clang Offload Bundler": the magic, a count, then for each entry the
offset, the size and the length of its id, and the id. Numbers are 64-bit little endian, offsets count from the magic.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"


class BundleError(ValueError):
    """A command line this program does not serve."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One member of a bundle: its target id, such as ``hipv4-amdgcn-amd-amdhsa--gfx950``, and its bytes."""

    target: str
    content: bytes


def pack(entries: Sequence[Entry], *, align: int) -> bytes:
    """The bundle of ``entries`` in order, each content at a multiple of ``align`` bytes."""
    targets = [entry.target.encode() for entry in entries]
    end = len(MAGIC) + 8 + sum(24 + len(target) for target in targets)
    header = [MAGIC, struct.pack("<Q", len(entries))]
    places = []
    for entry, target in zip(entries, targets, strict=True):
        start = -(-end // align) * align
        end = start + len(entry.content)
        places.append(start)
        header += [struct.pack("<QQQ", start, len(entry.content), len(target)), target]
    out = bytearray(b"".join(header))
    for entry, start in zip(entries, places, strict=True):
        out += bytes(start - len(out)) + entry.content
    return bytes(out)


def main(arguments: Sequence[str]) -> int:
    """Writes the bundle that the command line describes; returns the exit code."""
    align, targets, inputs, output = 1, [""], [], ""
    for argument in arguments:
        option, _, value = argument.lstrip("-").partition("=")
        match option:
            case "type" if value == "o":
                pass
            case "bundle-align":
                align = int(value)
            case "targets":
                targets = value.split(",")
            case "input":
                inputs.append(value)
            case "output":
                output = value
            case _:
                print(f"offload_bundler: option {argument} is not served", file=sys.stderr)
                return 2
    if len(targets) != len(inputs) or not output:
        print(f"offload_bundler: {len(targets)} targets, {len(inputs)} inputs, output '{output}'", file=sys.stderr)
        return 2
    entries = [Entry(target=t, content=Path(i).read_bytes()) for t, i in zip(targets, inputs, strict=True)]
    Path(output).write_bytes(pack(entries, align=align))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Code objects of a library as a kpack archive, which ROCm's loader and tools read instead of a fat binary.

Version 1 of the format, as read by shared/kpack of ROCm/rocm-systems (runtime/src/toc_parser.cpp at 0bf58574,
loader.cpp at 1ddbe7e9) and written by rocm_kpack/kpack.py (694d7e55) and compression.py (018a354d) of rocm-kpack:

- 16 bytes: ``KPAK``, the version (uint32), the offset of the table of contents (uint64), all little endian;
- zeros up to byte 64, then the blob: the number of code objects (uint32), and of each the length of its zstd frame
  (uint32) and the frame;
- the table, a MessagePack map: ``toc`` has by binary and arch an entry with the ``ordinal`` of its frame and the
  ``original_size``. A binary is named ``PATH#N``, N counting the fat binaries that were linked into it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import msgpack
import zstandard

from reports.errors import StatementError

GROUP = "ckpm"
_MAGIC = b"KPAK"
_VERSION = 1
_HEADER = struct.Struct("<4sIQ")
_LENGTH = struct.Struct("<I")
_BLOB_AT = 64
_LEVEL = 9  # of zstd: half the time of the levels above, which save 2 % more
_SCHEME = "zstd-per-kernel"


def file_name(arch: str) -> str:
    """As ROCm names its own: the group, then the arch, which the loader puts in place of @GFXARCH@."""
    return f"{GROUP}_{arch}.kpack"


def pack(library: str, arch: str, objects: Sequence[bytes]) -> bytes:
    """The archive of a library's code objects for one arch, in link order; ``library`` is its path in the bundle."""
    compressor = zstandard.ZstdCompressor(level=_LEVEL)
    frames = [compressor.compress(one) for one in objects]
    blob = _LENGTH.pack(len(frames)) + b"".join(_LENGTH.pack(len(frame)) + frame for frame in frames)
    table = {
        "format_version": _VERSION,
        "group_name": GROUP,
        "gfx_arch_family": arch,
        "gfx_arches": [arch],
        "toc": {
            f"{library}#{at}": {arch: {"type": "hsaco", "ordinal": at, "original_size": len(one)}}
            for at, one in enumerate(objects)
        },
        "compression_scheme": _SCHEME,
        "zstd_offset": _BLOB_AT,
        "zstd_size": len(blob),
    }
    header = _HEADER.pack(_MAGIC, _VERSION, _BLOB_AT + len(blob)).ljust(_BLOB_AT, b"\0")
    packed: bytes = msgpack.packb(table, use_bin_type=True)
    return header + blob + packed


def unpack(data: bytes, name: str, most: int) -> Mapping[tuple[str, str], bytes]:
    """Code objects by (``PATH#N``, arch), of no more than ``most`` bytes together, whatever little they are packed to.

    Raises:
        StatementError: no kpack archive of the version and scheme above, or of more bytes.
    """
    try:
        magic, version, at = _HEADER.unpack_from(data)
        if (magic, version) != (_MAGIC, _VERSION):
            raise ValueError(f"begins with {magic!r}, version {version}")
        table: Any = msgpack.unpackb(data[at:], raw=False)
        if table["compression_scheme"] != _SCHEME:
            raise ValueError(f"compressed as {table['compression_scheme']!r}")
        sizes = [entry["original_size"] for archs in table["toc"].values() for entry in archs.values()]
        if min(sizes, default=0) < 0 or sum(sizes) > most:
            raise ValueError(f"its code objects have more than the {most} bytes of the library's")
        frames = _frames(data[table["zstd_offset"] :][: table["zstd_size"]])
        return {
            (path, arch): _object(frames[entry["ordinal"]], entry["original_size"])
            for path, archs in table["toc"].items()
            for arch, entry in archs.items()
        }
    except (
        ValueError, KeyError, IndexError, TypeError, AttributeError, struct.error, zstandard.ZstdError,
        msgpack.UnpackException,
    ) as error:  # fmt: skip
        raise StatementError(f"{name}: no kpack archive that can be read: {error}.") from error


def _frames(blob: bytes) -> list[bytes]:
    (count,) = _LENGTH.unpack_from(blob)
    frames, at = [], _LENGTH.size
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(blob, at)
        at += _LENGTH.size
        frames.append(blob[at : at + length])
        at += length
    if at != len(blob):
        raise ValueError(f"{len(blob) - at} bytes behind the last frame")
    return frames


def _object(frame: bytes, size: int) -> bytes:
    if (said := zstandard.frame_content_size(frame)) != size:
        raise ValueError(f"a code object of {said} bytes, the table says {size}")
    data: bytes = zstandard.ZstdDecompressor().decompress(frame)
    return data

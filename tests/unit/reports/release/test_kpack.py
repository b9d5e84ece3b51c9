"""A kpack archive as ROCm's loader reads it; read here by hand, after the sources that kpack.py names."""

from __future__ import annotations

import contextlib
import struct

import msgpack
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from reports.errors import StatementError
from reports.release.bundle.kpack import file_name, pack, unpack


def test_layout() -> None:
    objects = [b"one" * 50, b"two" * 70]
    data = pack("lib/libckpm.so", "gfx950", objects)
    magic, version, toc_offset = data[:4], *struct.unpack("<IQ", data[4:16])
    assert (magic, version) == (b"KPAK", 1)
    table = msgpack.unpackb(data[toc_offset:], raw=False)
    assert table["gfx_arches"] == ["gfx950"]
    assert table["compression_scheme"] == "zstd-per-kernel"
    assert data[16 : table["zstd_offset"]] == bytes(48)  # the blob is aligned to 64 bytes
    blob = data[table["zstd_offset"] : table["zstd_offset"] + table["zstd_size"]]
    assert table["zstd_offset"] + table["zstd_size"] == toc_offset
    (count,) = struct.unpack("<I", blob[:4])
    at, found = 4, []
    for _ in range(count):
        (length,) = struct.unpack("<I", blob[at : at + 4])
        found.append(zstandard.decompress(blob[at + 4 : at + 4 + length]))
        at += 4 + length
    assert found == objects
    entry = table["toc"]["lib/libckpm.so#1"]["gfx950"]  # the loader appends # and the number of the fat binary
    assert entry == {"type": "hsaco", "ordinal": 1, "original_size": 210}
    assert file_name("gfx950") == "ckpm_gfx950.kpack"


@given(st.lists(st.binary(max_size=300), max_size=4))
def test_what_is_packed_comes_out(objects: list[bytes]) -> None:
    data = pack("a/b.so", "gfx942", objects)
    assert data == pack("a/b.so", "gfx942", objects)
    assert unpack(data, "x", 1 << 30) == {(f"a/b.so#{at}", "gfx942"): one for at, one in enumerate(objects)}


@given(st.data())
def test_damage_never_ends_in_another_error(data: st.DataObject) -> None:
    objects = [b"one" * 20, b"two"]
    good = pack("a.so", "gfx950", objects)
    at = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[at] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(StatementError):
        unpack(bytes(bad), "x", 1 << 30)  # SHA256SUMS finds what this can't


@pytest.mark.parametrize("data", [b"", b"KPAK", b"PAKK" + bytes(60), pack("a", "gfx950", [b"x"])[:-5]])
def test_no_archive(data: bytes) -> None:
    with pytest.raises(StatementError, match=r"^x: no kpack archive that can be read"):
        unpack(data, "x", 1 << 30)


def test_an_archive_that_unpacks_to_more_than_the_library_is_refused_before_it_is_unpacked() -> None:
    bomb = pack("a/b.so", "gfx942", [bytes(64 << 20)])
    assert len(bomb) < 10_000
    with pytest.raises(StatementError, match="its code objects have more than the 1000 bytes of the library's"):
        unpack(bomb, "x", 1000)
    hidden = bomb.replace(struct.pack(">BI", 0xCE, 64 << 20), struct.pack(">BI", 0xCE, 900))
    assert hidden != bomb
    with pytest.raises(StatementError, match="a code object of 67108864 bytes, the table says 900"):
        unpack(hidden, "x", 1000)

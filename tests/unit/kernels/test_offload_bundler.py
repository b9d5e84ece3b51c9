"""The bundle format survives a round trip, alone and concatenated, and damaged bundles are refused."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpm.kernels.code.toolchains import offload_bundler
from ckpm.kernels.code.toolchains.offload_bundler import MAGIC, Entry, main, pack
from ckpm_emulator.code_object import bundle
from ckpm_emulator.errors import CodeObjectError

_TARGETS = st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789-:+", min_size=1, max_size=40)
_ENTRIES = st.lists(st.builds(Entry, target=_TARGETS, content=st.binary(max_size=300)), min_size=1, max_size=5)
_ALIGN = st.sampled_from([1, 8, 16, 4096])
_GFX942 = Entry(target="hipv4-amdgcn-amd-amdhsa--gfx942", content=b"code of gfx942")


def contents(entries: list[Entry]) -> list[tuple[str, bytes]]:
    return [(entry.target, entry.content) for entry in entries]


@given(entries=_ENTRIES, align=_ALIGN)
def test_round_trip(entries: list[Entry], align: int) -> None:
    data = pack(entries, align=align)
    assert bundle(data, 0, "x") == (contents(entries), len(data))


@given(first=_ENTRIES, second=_ENTRIES, gap=st.integers(min_value=0, max_value=64))
def test_offsets_count_from_magic(first: list[Entry], second: list[Entry], gap: int) -> None:
    head = pack(first, align=16) + bytes(gap)
    assert bundle(head + pack(second, align=16), len(head), "x")[0] == contents(second)


@given(entries=_ENTRIES, align=_ALIGN)
def test_contents_are_aligned(entries: list[Entry], align: int) -> None:
    data = pack(entries, align=align)
    at = len(MAGIC) + 8
    for _ in entries:
        offset, _, length = struct.unpack_from("<QQQ", data, at)
        assert offset % align == 0
        at += 24 + length


@given(entries=_ENTRIES, data=st.data())
def test_truncation_is_refused(entries: list[Entry], data: st.DataObject) -> None:
    whole = pack(entries, align=8)
    cut = data.draw(st.integers(min_value=0, max_value=len(whole) - 1))
    with pytest.raises(CodeObjectError):
        bundle(whole[:cut], 0, "x")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"no bundle at all", "no offload bundle at byte 0"),
        (b"CCOB" + bytes(60), "compressed bundle at byte 0: build it with --no-offload-compress"),
        (MAGIC + struct.pack("<Q", 1 << 40), f"bundle at byte 0 claims {1 << 40} entries"),
        (MAGIC + struct.pack("<QQQQ", 1, 0, 0, 1 << 40), "bundle at byte 0: the id of entry 0 is cut off"),
        (MAGIC + b"\1\0", "truncated: bundle header cut off at byte 26"),
    ],
)
def test_messages(data: bytes, message: str) -> None:
    with pytest.raises(CodeObjectError) as caught:
        bundle(data, 0, "lib.so")
    assert str(caught.value) == f"lib.so: {message}"


def test_program_writes_what_pack_makes(tmp_path: Path) -> None:
    (tmp_path / "code").write_bytes(_GFX942.content)
    host = Entry(target="host-x86_64-unknown-linux-gnu-", content=b"")
    command = [
        *(sys.executable, "-I", "-S", offload_bundler.__file__, "-type=o", "-bundle-align=4096"),
        f"-targets={host.target},{_GFX942.target}",
        *("-input=/dev/null", f"-input={tmp_path / 'code'}", f"-output={tmp_path / 'out'}"),
    ]
    subprocess.run(command, check=True, cwd=tmp_path)
    assert (tmp_path / "out").read_bytes() == pack([host, _GFX942], align=4096)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-type=o", "-unbundle"], "option -unbundle is not served"),
        (["-type=bc"], "option -type=bc is not served"),
        (["-targets=a,b", "-input=/dev/null", "-output=x"], "2 targets, 1 inputs, output 'x'"),
        (["-targets=a", "-input=/dev/null"], "1 targets, 1 inputs, output ''"),
    ],
)
def test_program_refuses(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert message in capsys.readouterr().err

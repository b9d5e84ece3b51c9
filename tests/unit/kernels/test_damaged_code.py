"""Damaged code objects: each kind of damage is one error, before memory or time is spent. Files are made by hand."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpm.base.errors import CodeObjectError as KernelCodeError
from ckpm.kernels.code import code_object as kernel_code
from ckpm_emulator import code_object, image
from ckpm_emulator.errors import CodeObjectError

CODE = bytes.fromhex("000081bf")  # s_endpgm, little endian
KERNEL: dict[str, Any] = {
    ".name": "k", ".symbol": "k.kd", ".args": [], ".vgpr_count": 8, ".sgpr_count": 16, ".vgpr_spill_count": 0,
    ".sgpr_spill_count": 0, ".group_segment_fixed_size": 0, ".private_segment_fixed_size": 0,
    ".kernarg_segment_size": 8, ".max_flat_workgroup_size": 64, ".wavefront_size": 64,
}  # fmt: skip
METADATA = {"amdhsa.target": "amdgcn-amd-amdhsa--gfx950", "amdhsa.kernels": [KERNEL]}
NAMES = b"\0.text\0.note\0.symtab\0.strtab\0"
STRINGS = b"\0k\0k.kd\0"
SECTION = struct.Struct("<IIQQQQIIQQ")  # of ELF64: name, type, flags, address, offset, size, link, info, align, entry


def elf(metadata: object = METADATA, packed: bytes | None = None, **change: tuple[int, int]) -> bytes:
    """An AMDGPU ELF with one kernel. ``change`` is by section the field of its header (by number) and its value."""
    note = msgpack.packb(metadata) if packed is None else packed
    note = struct.pack("<III8s", 7, len(note), 32, b"AMDGPU") + note + bytes(-len(note) % 4)
    symbols = bytes(24)
    symbols += struct.pack("<IBBHQQ", 1, 0x12, 0, 1, 64, len(CODE))  # k, a function in section 1
    symbols += struct.pack("<IBBHQQ", 3, 0x11, 0, 1, 64, 64)  # k.kd, an object
    contents = {"text": CODE + bytes(60), "note": note, "symtab": symbols, "strtab": STRINGS + NAMES}
    kinds = {"text": 1, "note": 7, "symtab": 2, "strtab": 3}
    body, rows = b"", [list(SECTION.unpack(bytes(64)))]
    for name, content in contents.items():
        at = 64 + len(body)
        name_offset = len(STRINGS) + NAMES.index(f".{name}\0".encode())
        rows.append([name_offset, kinds[name], 0, at, at, len(content), 4, 0, 1, 24 if name == "symtab" else 0])
        body += content + bytes(-len(content) % 8)
    for name, (field, value) in change.items():
        rows[1 + list(contents).index(name)][field] = value
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, 224, 1, 0, 0, 64 + len(body), 0x54F, 64, 0, 0, 64, len(rows), 4)
    return header + body + b"".join(SECTION.pack(*row) for row in rows)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("amdgcn-amd-amdhsa--gfx950", "gfx950"),
        ("amdgcn-amd-amdhsa-unknown-gfx950:sramecc+:xnack-", "gfx950:sramecc+:xnack-"),
        ("amdgcn-amd-amdhsa-unknown-gfx9-generic:xnack+", "gfx950:xnack+"),
        ("amdgcn-amd-amdhsa", "gfx950"),
        (None, "gfx950"),
    ],
)
def test_arch_is_of_elf_header_for_every_target_text(target: str | None, expected: str) -> None:
    metadata = {name: value for name, value in {**METADATA, "amdhsa.target": target}.items() if value is not None}
    read = code_object.read(elf(metadata))
    assert (read.target, read.arch) == (expected, "gfx950")


def test_without_arch_in_header_and_metadata_it_is_refused() -> None:
    other = bytearray(elf({**METADATA, "amdhsa.target": "amdgcn"}))
    other[48:52] = bytes(4)  # e_flags
    with pytest.raises(CodeObjectError, match="neither its ELF header nor its metadata"):
        code_object.read(bytes(other))


def kernel(**change: object) -> dict[str, Any]:
    return {**METADATA, "amdhsa.kernels": [{**KERNEL, **{f".{name}": value for name, value in change.items()}}]}


def test_undamaged_code_object_is_read() -> None:
    (resources,) = kernel_code.kernels(elf())
    assert (resources.symbol, resources.vgpr, resources.arch, resources.text_bytes) == ("k", 8, "gfx950", 4)
    assert kernel_code.functions(elf()) == {"k": CODE}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (elf(text=(5, 1 << 60)), "truncated: "),  # size
        (elf(symtab=(9, 1)), "a table has entries of 1 bytes"),  # a million symbols out of a few
        (elf(text=(2, 0x800)), "section .* is compressed"),  # flags
        (elf(text=(1, 8)), "section .* has no content"),  # type: NOBITS
        (elf(text=(3, 1 << 30)), "function 'k' lies outside of its section"),  # address
        (elf()[:58] + struct.pack("<H", 3) + elf()[60:], "its tables have entries of another size"),
        (b"\x7fELF\x01\x01" + elf()[6:], "no header of a 64-bit little endian one"),
        (elf(packed=b"\x91" * 100_000), "metadata note is not MessagePack"),  # lists in lists
        (elf(kernel(vgpr_count=-1)), "no 32-bit count as .vgpr_count"),
        (elf(kernel(args=[{".offset": 1 << 40}])), "no 32-bit count as .offset"),
        (elf(kernel(wavefront_size=0)), "a wave or a workgroup without lanes"),
    ],
)
def test_damage_is_one_error(data: bytes, message: str) -> None:
    with pytest.raises(KernelCodeError, match=message):
        kernel_code.kernels(data)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_changed_code_object_is_read_or_refused(data: st.DataObject) -> None:
    changed = bytearray(elf())
    for at in data.draw(st.lists(st.integers(0, len(changed) - 1), min_size=1, max_size=8)):
        changed[at] = data.draw(st.integers(0, 255))
    for read in (lambda content: code_object.read(content).functions, image.read):
        with contextlib.suppress(CodeObjectError):
            read(bytes(changed))


def test_file_that_is_not_plain_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "endless").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to("loop")
    for name, message in (("endless", "no plain file"), ("loop", "Too many levels"), ("", "Is a directory")):
        with pytest.raises(KernelCodeError, match=message):
            kernel_code.bundles(tmp_path / name)

"""Source lines of a code object that was compiled with -g or -gline-tables-only: the line table of DWARF."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from elftools.common.exceptions import DWARFError, ELFError
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile

_COMPRESSED = 0x800  # SHF_COMPRESSED: such a section may hold any amount
_SECTIONS = (".debug_line", ".debug_info", ".debug_abbrev", ".debug_str", ".debug_line_str")
# Bytes of the forms that lists of files and folders may have in version 5: data1, 2, 4, 8 and 16, strp, line_strp.
_FIXED = {0x0B: 1, 0x05: 2, 0x06: 4, 0x07: 8, 0x1E: 16, 0x0E: 4, 0x1F: 4}
_STRING, _NUMBER, _BLOCK = 0x08, 0x0F, 0x09
_DAMAGE = (
    *(ELFError, DWARFError, ConstructError, struct.error, ArithmeticError, AssertionError, AttributeError),
    *(LookupError, NotImplementedError, OSError, TypeError, ValueError),
)


def source_lines(elf: ELFFile, start: int, size: int) -> tuple[tuple[int, str], ...]:
    """The source's file and line from each pc on, ascending; '' where the table has none. ``start`` is .text's.

    A code object without a readable table has none: the lines are for messages alone.
    """
    try:
        sections = [elf.get_section_by_name(name) for name in _SECTIONS]
        if sections[0] is None or any(
            section is not None and section["sh_flags"] & _COMPRESSED for section in sections
        ):
            return ()
        rows = sorted(_rows(elf), key=lambda row: (row[0], row[1] != ""))  # a function begins where another ends
    except _DAMAGE:
        return ()
    return tuple({address - start: line for address, line in rows if start <= address <= start + size}.items())


def _rows(elf: ELFFile) -> Iterator[tuple[int, str]]:
    dwarf = elf.get_dwarf_info(relocate_dwarf_sections=False, follow_links=False)
    _check_lists(dwarf.debug_line_sec.stream.getvalue())
    for unit in dwarf.iter_CUs():
        program = dwarf.line_program_for_CU(unit)
        states = [entry.state for entry in program.get_entries()] if program else []
        for state in states:
            if state is not None:
                yield state.address, "" if state.end_sequence or not state.line else _file_and_line(program, state)


def _check_lists(table: bytes) -> None:
    """Raise ValueError or LookupError for a list of files that can't be as long as it states: it would fill memory."""
    at = 0
    while at + 18 < len(table):
        size, version = struct.unpack_from("<IH", table, at)
        if version >= 5:
            _skip_list(table, _skip_list(table, at + 17 + table[at + 17]))  # after the operands of standard opcodes
        at += 4 + size


def _skip_list(table: bytes, at: int) -> int:
    """The end of a list: its format, in pairs of a content and a form, then its entries."""
    formats, at = table[at], at + 1
    forms = []
    for _ in range(formats):
        _, at = _number(table, at)
        form, at = _number(table, at)
        forms.append(form)
    count, at = _number(table, at)
    if count and not forms:
        raise ValueError("entries that take no room")
    for _ in range(count):
        for form in forms:
            at = _skip(table, at, form)
    return at


def _skip(table: bytes, at: int, form: int) -> int:
    if form == _STRING:
        return table.index(0, at) + 1
    if form == _NUMBER:
        return _number(table, at)[1]
    if form == _BLOCK:
        size, at = _number(table, at)
        return at + size
    if at >= len(table):
        raise ValueError("a list goes on after the table's end")
    return at + _FIXED[form]


def _number(table: bytes, at: int) -> tuple[int, int]:
    """An unsigned LEB128 and its end."""
    value = shift = 0
    while table[at] & 0x80:
        value |= (table[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
    return value | table[at] << shift, at + 1


def _file_and_line(program: Any, state: Any) -> str:
    first = 0 if program["version"] >= 5 else 1  # number of the first file; of folders, 0 is that of the compilation
    file = program["file_entry"][state.file - first]
    folders, number = program["include_directory"], file.dir_index - first
    folder = folders[number].decode(errors="replace") + "/" if 0 <= number < len(folders) else ""
    name = file.name.decode(errors="replace")
    return f"{'' if name.startswith('/') else folder}{name}:{state.line}"

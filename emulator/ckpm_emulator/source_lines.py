"""Source lines of a code object that was compiled with -g or -gline-tables-only: the line table of DWARF.

An instruction of a header of HIP or of the compiler, as of __syncthreads, has the line that calls the function there.
"""

from __future__ import annotations

import contextlib
import re
import struct
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from elftools.common.exceptions import DWARFError, ELFError
from elftools.construct import ConstructError
from elftools.dwarf.ranges import BaseAddressEntry
from elftools.elf.elffile import ELFFile

_COMPRESSED = 0x800  # SHF_COMPRESSED: such a section may hold any amount
_SECTIONS = (
    *(".debug_line", ".debug_info", ".debug_abbrev", ".debug_str", ".debug_line_str"),
    *(".debug_addr", ".debug_str_offsets", ".debug_rnglists", ".debug_ranges"),
)
_OF_HIP = re.compile(r"/hip/(amd_)?detail/|/hip/hip_\w+\.h:|/__clang_\w+\.h:")
_MOST_INFO = 2 << 20  # bytes of .debug_info, of which a second reads about half a MiB
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
        dwarf = elf.get_dwarf_info(relocate_dwarf_sections=False, follow_links=False)
        rows = sorted(_rows(dwarf), key=lambda row: (row[0], row[1] != ""))  # a function begins where another ends
        lines = {address: line for address, line in rows if start <= address <= start + size}
    except _DAMAGE:
        return ()
    with contextlib.suppress(*_DAMAGE):  # the lines are of use without their callers
        if elf.get_section_by_name(".debug_info").data_size <= _MOST_INFO:
            lines |= _callers({address: line for address, line in lines.items() if _OF_HIP.search(line)}, dwarf)
    return tuple((address - start, line) for address, line in lines.items())


def _callers(lines: dict[int, str], dwarf: Any) -> dict[int, str]:
    """The lines with those that call their inlined functions: the innermost call outside of HIP's headers."""
    addresses, called = sorted(lines), dict(lines)
    for unit in dwarf.iter_CUs() if lines else ():
        program = dwarf.line_program_for_CU(unit)
        for entry in unit.iter_DIEs():  # the outer ones first
            if entry.tag != "DW_TAG_inlined_subroutine" or "DW_AT_call_line" not in entry.attributes:
                continue
            file, line = (entry.attributes[f"DW_AT_call_{name}"].value for name in ("file", "line"))
            call = _file_and_line(program, file, line)
            for low, high in () if _OF_HIP.search(call) else _ranges(entry, unit, dwarf):
                for address in addresses[bisect_left(addresses, low) : bisect_left(addresses, high)]:
                    called[address] = f"{call}, inlined from {lines[address]}"
    return called


def _ranges(entry: Any, unit: Any, dwarf: Any) -> Iterator[tuple[int, int]]:
    """The addresses of an inlined function, from the first of each range to its end."""
    if "DW_AT_low_pc" in entry.attributes:
        low, high = (entry.attributes[name] for name in ("DW_AT_low_pc", "DW_AT_high_pc"))
        yield low.value, high.value if high.form == "DW_FORM_addr" else low.value + high.value
    elif "DW_AT_ranges" in entry.attributes:
        base = unit.get_top_DIE().attributes["DW_AT_low_pc"].value
        for part in dwarf.range_lists().get_range_list_at_offset(entry.attributes["DW_AT_ranges"].value, unit):
            if isinstance(part, BaseAddressEntry):
                base = part.base_address
            else:
                origin = 0 if part.is_absolute else base
                yield origin + part.begin_offset, origin + part.end_offset


def _rows(dwarf: Any) -> Iterator[tuple[int, str]]:
    _check_lists(dwarf.debug_line_sec.stream.getvalue())
    for unit in dwarf.iter_CUs():
        program = dwarf.line_program_for_CU(unit)
        states = [entry.state for entry in program.get_entries()] if program else []
        for state in states:
            if state is not None:
                yield (
                    state.address,
                    "" if state.end_sequence or not state.line else _file_and_line(program, state.file, state.line),
                )


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


def _file_and_line(program: Any, number: int, line: int) -> str:
    first = 0 if program["version"] >= 5 else 1  # number of the first file; of folders, 0 is that of the compilation
    file = program["file_entry"][number - first]
    folders, folder_number = program["include_directory"], file.dir_index - first
    folder = folders[folder_number].decode(errors="replace") + "/" if 0 <= folder_number < len(folders) else ""
    name = file.name.decode(errors="replace")
    return f"{'' if name.startswith('/') else folder}{name}:{line}"

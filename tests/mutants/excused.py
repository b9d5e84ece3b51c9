"""Read excused.yaml: planted defects that a person has found to change no result of a legal problem."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Mapping
from pathlib import Path

from ckpm.base.tablefile import Record, Text, read_table
from tests.mutants.drawing import Kernel, Mutant

FILE = Path(__file__).with_name("excused.yaml")
_DIGITS = 16


class Excuse(Record, frozen=True):
    """A survivor and the reason why it is harmless. For other ``code`` of the kernel the excuse is void."""

    kernel: Text
    code: Text  # digits of the sha256 of the kernel's machine code and descriptor
    change: Text
    why: Text
    read_on: datetime.date


class _Excused(Record, frozen=True):
    excused: tuple[Excuse, ...]


Excuses = Mapping[tuple[str, str, str], Excuse]


def read(file: Path = FILE) -> Excuses:
    """The excuses by kernel, code and change. Raises TableError: the file is malformed, or lists a change twice."""
    table = read_table(file, _Excused)
    excuses: dict[tuple[str, str, str], Excuse] = {}
    for number, excuse in enumerate(table.record.excused):
        if excuses.setdefault((excuse.kernel, excuse.code, excuse.change), excuse) is not excuse:
            raise table.fail("this change is excused twice", "excused", number)
    return excuses


def code_digest(kernel: Kernel) -> str:
    code = b"".join(
        instruction.encoding.raw.to_bytes(instruction.size, "little") for instruction in kernel.instructions
    )
    return hashlib.sha256(code + kernel.descriptor).hexdigest()[:_DIGITS]


def find(excuses: Excuses, mutant: Mutant, code: str) -> Excuse | None:
    return excuses.get((mutant.kernel, code, mutant.text))

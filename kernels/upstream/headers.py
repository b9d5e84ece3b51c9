"""The files of a tree, and its headers as they were when its identity was determined.

An object that is compiled while a header is edited or damaged must not enter the shared cache under the identity of
what the header was before. Size and times are compared after every compile: a millisecond, where hashing takes ten.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable
from pathlib import Path

from ckpm.base.bounded import BoundsError, parse_json, read_bytes, read_text
from ckpm.base.files import write_if_changed

RECORD = ".headers.json"  # in a build's output folder

# path, bytes, nanoseconds of writing, nanoseconds of any change (a copy can set the former back)
State = tuple[str, int, int, int]


def content(file: Path) -> bytes:
    """A file of a tree. Raises OSError, also for one that is larger than any of CK's."""
    try:
        return read_bytes(file)
    except BoundsError as error:
        raise OSError(errno.EFBIG, str(error), str(file)) from error


def states(files: Iterable[Path]) -> tuple[State, ...]:
    """Of files now. Raises OSError: one is not there."""
    return tuple(_state(str(file)) for file in files)


def write(folder: Path, headers: Iterable[State]) -> None:
    """Record the states that a build in ``folder`` rests on. Raises DiskFullError, OutputError."""
    write_if_changed(folder / RECORD, json.dumps(list(headers)))


def changed(folder: Path) -> str:
    """A header that is not as it was recorded, '' if all are or nothing was recorded."""
    try:
        recorded = [(str(state[0]), tuple(state)) for state in parse_json(read_text(folder / RECORD))]
    except FileNotFoundError:
        return ""
    except (ValueError, LookupError, TypeError):  # damaged: nothing shows that the headers are as they were
        return str(folder / RECORD)
    for header, state in recorded:
        try:
            same = _state(header) == state
        except OSError:
            same = False
        if not same:
            return header
    return ""


def _state(file: str) -> State:
    there = os.stat(file)  # noqa: PTH116 - a thousand of them after every compile
    return file, there.st_size, there.st_mtime_ns, there.st_ctime_ns

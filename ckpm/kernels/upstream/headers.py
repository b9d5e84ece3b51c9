"""The files of a tree, and the state of its headers when its identity was determined.

An object that is compiled while a header is edited or damaged must not enter the shared cache under the header's
earlier identity. Size and times are compared after every compile, which takes a tenth of hashing.
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
    """Return the content of a file of a tree. Raises OSError, also for a file that is larger than any of CK's."""
    try:
        return read_bytes(file)
    except BoundsError as error:
        raise OSError(errno.EFBIG, str(error), str(file)) from error


def states(files: Iterable[Path]) -> tuple[State, ...]:
    """Return the states of files. Raises OSError: a file is missing."""
    return tuple(_state(str(file)) for file in files)


def write(folder: Path, headers: Iterable[State]) -> None:
    """Record the states of the headers of a build in ``folder``."""
    write_if_changed(folder / RECORD, json.dumps(list(headers)))


def first_changed(folder: Path) -> str:
    """Return a header that differs from its record, '' if none does or nothing was recorded."""
    try:
        recorded = [(str(state[0]), tuple(state)) for state in parse_json(read_text(folder / RECORD))]
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, LookupError, TypeError):  # damaged: nothing shows that the headers are unchanged
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

"""Results at places that a user names: nothing there is lost that we did not write.

``.ckpm-outputs`` in a folder is the record of what we wrote into it: lines as sha256sum writes them, the last one of a
name counts. Only a file that is still as recorded is removed, or replaced without being named by the user.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import hashlib
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from .errors import UsageError
from .files import is_special, name_write_errors, regular_file, sha256_of, write_atomically

RECORD = ".ckpm-outputs"
_LONGEST = 100_000  # bytes; then the record is written anew without repetitions
# arguments that are written and not read
OPTIONS = ("output", "html", "table", "render", "trace", "csv", "json")


def write_output(file: Path, data: bytes) -> None:
    """Write a result, and record it unless it went to a device or pipe.

    Raises DiskFullError, OutputError.
    """
    write_atomically(file, data)
    if target := regular_file(file):
        record(target.parent, {target.name: hashlib.sha256(data).hexdigest()})


def demand_place(file: Path) -> None:
    """Raise at once what writing a result there would raise after hours; missing folders are made.

    Raises DiskFullError, OutputError.
    """
    with name_write_errors(file):
        if is_special(file):
            if file.is_char_device():
                with file.open("wb", buffering=0) as stream:
                    stream.write(b"")  # /dev/full refuses no bytes too
            return
        target = Path(os.path.realpath(file))
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=target.parent):
            pass


def forget_output(file: Path) -> None:
    """Remove a result of an earlier run, so that it is not read if this run fails. Files of others stay.

    Raises OutputError.
    """
    with name_write_errors(file), contextlib.suppress(FileNotFoundError):  # another run may forget it at the same time
        target = regular_file(file)
        if target and is_ours(target):
            target.unlink()


def is_ours(file: Path) -> bool:
    """Return True if a regular file is as we wrote it."""
    expected = recorded_digests(file.parent).get(file.name)
    return expected is not None and expected == sha256_of(file)


def demand_ours(files: Iterable[Path]) -> None:
    """Refuse to write over files that somebody else wrote, or changed; missing ones may be written.

    Raises:
        UsageError: one is not ours.
    """
    for file in files:
        target = regular_file(file)
        if target and not is_ours(target):
            raise UsageError(
                f"{file}: it is there, and not as this command writes it: it would be lost. Name another folder, or "
                "move it away.",
                kind="overwrite",
            )


def record(folder: Path, sums: Mapping[str, str]) -> None:
    """Add files by name, with their sha256, to a folder's record. Raises DiskFullError, OutputError."""
    recorded = recorded_digests(folder)
    lines = _lines({name: digest for name, digest in sums.items() if recorded.get(name) != digest})
    file = folder / RECORD
    with name_write_errors(file):
        if file.is_file() and file.stat().st_size > _LONGEST:
            present = {name: digest for name, digest in recorded.items() if (folder / name).exists()}
            write_atomically(file, _lines({**present, **sums}))
        elif lines:
            # one write at the end: two commands that write into the folder lose no line of each other
            descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            with os.fdopen(descriptor, "wb", buffering=0) as stream:
                stream.write(lines)


def recorded_digests(folder: Path) -> dict[str, str]:
    """The sha256 of what we wrote into a folder, by name. Lines that are not of a record count as absent."""
    file = folder / RECORD
    if not file.is_file():
        return {}
    digests = {}
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        digest, two_spaces, name = line.partition("  ")
        if two_spaces and len(digest) == 64 and name == os.path.basename(name):  # noqa: PTH119
            digests[name] = digest
    return digests


def refuse_inputs(output: Path | None, inputs: Iterable[Path]) -> None:
    """Refuse an output that is one of the inputs, by whatever path or link.

    Raises:
        UsageError: it is.
    """
    target = regular_file(output) if output else None
    if target is None:
        return
    for file in inputs:
        if file.exists() and os.path.samefile(target, file):  # noqa: PTH121
            raise UsageError(
                f"{output}: it is read by this command, and would be lost: name another output.", kind="overwrite"
            )


def refuse_inputs_among(arguments: argparse.Namespace) -> None:
    """:func:`refuse_inputs` for each of OPTIONS, with every other path among the arguments. Raises UsageError."""
    values = vars(arguments)
    inputs = [path for name, value in values.items() if name not in OPTIONS for path in _paths(value)]
    for name in OPTIONS:
        for output in _paths(values.get(name)):
            refuse_inputs(output, inputs)


def _paths(value: object) -> list[Path]:
    many = value if isinstance(value, list | tuple) else [value]
    return [path for path in many if isinstance(path, Path)]


def _lines(sums: Mapping[str, str]) -> bytes:
    return "".join(f"{digest}  {name}\n" for name, digest in sums.items() if "\n" not in name).encode()

"""Write results to the user's paths without losing files that we did not write.

``.ckpm-outputs`` in a folder records our files in it: lines in sha256sum's format. Each line of a name counts, because
of two runs at once the last to record a file may not be the last that wrote it. Only files with a recorded sha256 are
removed, or replaced unless the user named them.
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
    """Write a result, and record it unless it went to a device or pipe."""
    write_atomically(file, data)
    if target := regular_file(file):
        record(target.parent, {target.name: hashlib.sha256(data).hexdigest()})


def demand_place(file: Path) -> None:
    """Raise at once if a result can't be written there, instead of after hours; missing folders are made."""
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
    """Remove a result of an earlier run, so that it is not read if this run fails. Files of others stay."""
    with name_write_errors(file), contextlib.suppress(FileNotFoundError):  # another run may forget it at the same time
        target = regular_file(file)
        if target and is_ours(target):
            target.unlink()


def is_ours(file: Path) -> bool:
    """Return True if a regular file has a sha256 that we recorded."""
    digests = [digest for digest, name in _record_lines(file.parent) if name == file.name]
    return bool(digests) and sha256_of(file) in digests


def demand_ours(files: Iterable[Path]) -> None:
    """Refuse to write over files that somebody else wrote or changed; missing files are allowed."""
    for file in files:
        target = regular_file(file)
        if target and not is_ours(target):
            raise UsageError(
                f"{file}: it is there, and not as this command writes it: it would be lost. Name another folder, or "
                "move it away.",
                kind="overwrite",
            )


def record(folder: Path, sums: Mapping[str, str]) -> None:
    """Add files by name, with their sha256, to a folder's record."""
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
    """The last recorded sha256 of our files in a folder, by name."""
    return {name: digest for digest, name in _record_lines(folder)}


def _record_lines(folder: Path) -> list[tuple[str, str]]:
    """The sha256 and name of each line of a folder's record. Malformed lines are left out."""
    file = folder / RECORD
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    lines = [line.partition("  ") for line in text.splitlines()]
    return [
        (digest, name)
        for digest, two_spaces, name in lines
        if two_spaces and len(digest) == 64 and name == os.path.basename(name)  # noqa: PTH119
    ]


def refuse_inputs(output: Path | None, inputs: Iterable[Path]) -> None:
    """Refuse an output that is one of the inputs, also by another path or link."""
    target = regular_file(output) if output else None
    if target is None:
        return
    for file in inputs:
        if file.exists() and os.path.samefile(target, file):  # noqa: PTH121
            raise UsageError(
                f"{output}: it is read by this command, and would be lost: name another output.", kind="overwrite"
            )


def refuse_inputs_among(arguments: argparse.Namespace) -> None:
    """Apply :func:`refuse_inputs` to each of OPTIONS, with all other paths among the arguments as inputs.

    Two outputs in one file are refused, too.
    """
    values = vars(arguments)
    inputs = [path for name, value in values.items() if name not in OPTIONS for path in _paths(value)]
    targets: set[str] = set()
    for output in (path for name in OPTIONS for path in _paths(values.get(name))):
        refuse_inputs(output, inputs)
        if (target := os.path.realpath(output)) in targets and not is_special(output):
            raise UsageError(
                f"{output}: two results of this command would be written there, and one lost: name another output.",
                kind="overwrite",
            )
        targets.add(target)


def _paths(value: object) -> list[Path]:
    values = value if isinstance(value, list | tuple) else [value]
    return [path for path in values if isinstance(path, Path)]


def _lines(sums: Mapping[str, str]) -> bytes:
    return "".join(f"{digest}  {name}\n" for name, digest in sums.items() if "\n" not in name).encode()

"""Changes that make a valid file hostile. The caller gives the random numbers, so that a seed repeats them."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

Change = Callable[[bytes, random.Random], bytes]

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
)
WORDS = (
    *("", " ", "\0", "\x1b[31m", "\x1b]0;x\x07", "\u202e", "\u200f", "a\nerror: b", "a\r", "[bold]", "|", "`", "<b>&"),
    *("../../x", "/etc/passwd", "~", "%s%n", "{0}", "${x}", "a" * 5000, "\U0001f9e8", "é", "nan", "null", "-1", "*"),
)
NUMBERS = (-1, 0, 1, 2**31, 2**32, 2**63, 2**64, -(2**63), 10**39, 1.5, -0.0, 1e308, 5e-324)
PARTS: tuple[Any, ...] = (None, True, False, [], {}, [[]], {"": {}}, [None], {"a": None}, list(range(3000)))
# texts that no serializer writes
RAW = (
    *("NaN", "Infinity", "-Infinity", "1e400", "9" * 5000, '"\\ud800"', "[" * 5000, '{"a":' * 5000, "1" * 30 + ".5"),
    *("0x10", "!!python/object/apply:os.system [x]", "&a [*a]", "*missing", "? [a]", "2026-13-45", "1_0", "0o17", "="),
    *("<!DOCTYPE a [<!ENTITY b 'c'>]>", "&b;", "<a>" * 500, "]]>", "<?x", "\ufeff", "\t", "---\n", "%YAML 9.9\n", "#"),
)
_MOST_MEMBERS = 10_000
_MARK = "@hostile@"
_TOKEN = re.compile(rb"[\w.+-]+|\"[^\"]*\"|[\[\]{}<>:,=]")


def flip(data: bytes, numbers: random.Random) -> bytes:
    """Change some bytes."""
    changed = bytearray(data)
    for _ in range(numbers.choice((1, 1, 2, 8, 64))):
        if changed:
            changed[numbers.randrange(len(changed))] = numbers.choice((0, 0xFF, 0x80, numbers.randrange(256)))
    return bytes(changed)


def resize(data: bytes, numbers: random.Random) -> bytes:
    """Remove, repeat or move a piece, or truncate the file."""
    start, end = sorted(numbers.randrange(len(data) + 1) for _ in range(2))
    at = numbers.randrange(len(data) + 1)
    return numbers.choice(
        (data[:start], data[:start] + data[end:], data[:at] + data[start:end] + data[at:], data[start:], b"")
    )


def renumber(data: bytes, numbers: random.Random) -> bytes:
    """Write an extreme integer, little endian, most often into a header."""
    width = numbers.choice((2, 4, 8))
    value = numbers.choice((0, 1, 2, 255, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 63, (1 << 64) - 1, len(data)))
    span = numbers.choice((64, 128, 4096, len(data)))
    low = numbers.choice((0, max(0, len(data) - span)))
    at = min(low + numbers.randrange(span // width + 1) * width, max(0, len(data) - width))
    return data[:at] + (value & ((1 << 8 * width) - 1)).to_bytes(width, "little") + data[at + width :]


def replace_token(data: bytes, numbers: random.Random) -> bytes:
    """Replace a word, a number or a bracket."""
    tokens = list(_TOKEN.finditer(data))
    if not tokens:
        return data
    chosen = numbers.choice(tokens)
    other: bytes = numbers.choice((*(word.encode() for word in WORDS), *(raw.encode() for raw in RAW), chosen[0] * 2))
    return data[: chosen.start()] + other + data[chosen.end() :]


def edit_line(data: bytes, numbers: random.Random) -> bytes:
    """Remove, repeat, insert or replace a line."""
    lines = data.splitlines(keepends=True) or [b""]
    line, at = lines[numbers.randrange(len(lines))], numbers.randrange(len(lines))
    match numbers.randrange(4):
        case 0:
            lines.remove(line)
        case 1:
            lines.insert(at, line)
        case 2:
            lines.insert(at, numbers.choice((LAUGHS, *RAW)).encode() + b"\n")
        case _:
            lines[at] = numbers.choice(WORDS).encode() + b"\n"
    return b"".join(lines)


def restructure(data: bytes, numbers: random.Random) -> bytes:
    """Change, remove or rename members of a JSON or YAML document. The result is still JSON or YAML."""
    document = yaml.safe_load(data) if data.strip() else {}
    members = list(itertools.islice(_members(document), _MOST_MEMBERS))  # aliases can repeat them without end
    as_yaml = not data.lstrip().startswith((b"{", b"["))
    raw = None
    for _ in range(numbers.choice((1, 1, 1, 2, 4))):
        if not members:
            break
        holder, name = numbers.choice(members)
        with contextlib.suppress(LookupError):  # an earlier change removed it
            raw = _change(holder, name, numbers) or raw
    text = yaml.safe_dump(document, allow_unicode=True) if as_yaml else json.dumps(document, ensure_ascii=False)
    if raw:
        text = text.replace(f'"{_MARK}"', raw).replace(_MARK, raw)
    return text.encode("utf-8", "surrogatepass")


def _members(value: Any) -> Any:
    if isinstance(value, dict | list):
        for name in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, name
            yield from _members(value[name])


def _change(holder: Any, name: Any, numbers: random.Random) -> str | None:
    """Change one member. Return its new text if no serializer can write it."""
    kind = numbers.randrange(8)
    if kind == 0:
        del holder[name]
    elif kind == 1 and isinstance(holder, dict):
        holder[numbers.choice(WORDS)] = holder.pop(name)
    elif kind == 2:
        holder[name] = _MARK
        return numbers.choice(RAW)
    elif kind == 3:
        holder[name] = [holder[name]] * numbers.choice((1, 2, 300))
    else:
        holder[name] = numbers.choice(numbers.choice((WORDS, NUMBERS, PARTS)))
    return None


BYTES: tuple[Change, ...] = (flip, resize, renumber)
TEXT: tuple[Change, ...] = (flip, resize, replace_token, replace_token, edit_line)
DOCUMENT: tuple[Change, ...] = (*TEXT, restructure, restructure, restructure, restructure, restructure)


def replace_file(file: Path, numbers: random.Random) -> str:
    """Replace the file by something else. Return a word for that."""
    if file.is_dir():
        shutil.rmtree(file)
    else:
        file.unlink()
    what = numbers.choice(("nothing", "folder", "pipe", "loop", "endless", "huge", "zeros"))
    match what:
        case "folder":
            file.mkdir()
        case "pipe":
            os.mkfifo(file)
        case "loop":
            file.symlink_to(file.name)
        case "endless":
            file.symlink_to("/dev/zero")
        case "huge" | "zeros":
            file.touch()
            os.truncate(file, 1 << 40 if what == "huge" else 1 << 16)
    return what


def make_hostile(file: Path, changes: tuple[Change, ...], numbers: random.Random) -> str:
    """Change a valid file. Return a description of the change."""
    if numbers.random() < 0.05:
        return replace_file(file, numbers)
    data, names = file.read_bytes(), []
    for _ in range(numbers.choice((1, 1, 1, 2, 3))):
        change = numbers.choice(changes)
        names.append(change.__name__)
        try:
            data = change(data, numbers)
        except (yaml.YAMLError, ValueError, TypeError, RecursionError):  # an earlier change left no document
            data = flip(data, numbers)
    file.write_bytes(data)
    return " ".join(names)

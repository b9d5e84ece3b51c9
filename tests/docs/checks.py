"""Check a page without running its commands; return complaints as ``page:line: text``."""

from __future__ import annotations

import functools
import inspect
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from ckpm.base import errors
from tests.docs.commands import complaints
from tests.docs.pages import NOT_HERE, ROOT, apply_diff, blocks, prose

_NAMELESS = re.compile(r"^\|(?:[^\n]*\|)? *\|[^\n]*\n\|[ :|-]+\|$", re.MULTILINE)
_KINDS = {"console", "diff", "python", "text", "yaml", "{toctree}", "{raw}", "{literalinclude}", "{eval-rst}"}
_MARK = re.compile(rf"{'|'.join(NOT_HERE)}|exit=\d+")
_NAMED = re.compile(r"`(\w+Error)`(?: \((\d+)\))?")
_EXIT_CODE = re.compile(r"[Ee]xit codes? (\d+)")
_SHELL_CODES = {0, 1, 130, 141}
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"https?://[^\s)>|]+")
_RELATIVE = re.compile(r"\]\((?!https?:)([^)#\s]+)(?:#[^)\s]*)?\)")
_IMPORT = re.compile(r"from ckpm[\w.]* import [\w, ]+")
_ADDED = re.compile(r"^\+(?!\+\+ )(.*)$", re.MULTILINE)
_UNKNOWN = re.compile(r"unknown \w+ '([^']+)'|: ([\w.-]+) is none of")


def check_page(page: str, text: str) -> list[str]:
    """Return all complaints about a page."""
    return [
        *check_blocks(page, text),
        *check_heads(page, text),
        *check_commands(page, text),
        *check_changes(page, text),
        *check_imports(page, text),
        *check_files(page, text),
        *check_exit_codes(page, text),
        *check_links(page, text),
        *check_relative_links(page, text),
    ]


def check_blocks(page: str, text: str) -> Iterator[str]:
    for block in blocks(page, text):
        if block.kind not in _KINDS:
            yield f"{page}:{block.line}: a block of kind {block.kind!r}: {', '.join(sorted(_KINDS))} are known"
        for mark in block.marks:
            if block.kind == "console" and not _MARK.fullmatch(mark):
                yield f"{page}:{block.line}: unknown mark {mark!r}"


def check_heads(page: str, text: str) -> Iterator[str]:
    """Check that each column of a table has a name, which a screen reader announces at every cell."""
    for match in _NAMELESS.finditer(text):
        yield f"{page}:{text.count(chr(10), 0, match.start()) + 1}: a column of the table has no name"


def check_commands(page: str, text: str) -> Iterator[str]:
    """Check commands. They may use a word that a change of the page adds, for instance an arch."""
    added = ""
    for block in blocks(page, text):
        if block.kind == "diff":
            added += "\n".join(_ADDED.findall(block.text))
        if block.kind != "console":
            continue
        try:
            commands = block.commands()
        except ValueError as error:
            yield str(error)
            continue
        for command in commands:
            for complaint in complaints(command.text):
                unknown = _UNKNOWN.search(complaint)
                if not (unknown and (unknown[1] or unknown[2]) in added):
                    yield f"{page}:{command.line}: {complaint}"


def check_changes(page: str, text: str) -> Iterator[str]:
    """Apply the changes of a page to copies of the files, in order."""
    changes = [block for block in blocks(page, text) if block.kind == "diff"]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in {name for block in changes for name in re.findall(r"^--- a/(\S+)", block.text, re.MULTILINE)}:
            if not (ROOT / name).is_file():
                yield f"{page}: a change of {name}, which is not there"
                return
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
        for block in changes:
            if complaint := apply_diff(block, folder):
                yield complaint


def check_imports(page: str, text: str) -> Iterator[str]:
    """Check that blocks of Python import names that ckpm's modules have."""
    for block in blocks(page, text):
        for number, line in enumerate(block.lines if block.kind == "python" else (), start=block.line + 1):
            if _IMPORT.fullmatch(line):
                try:
                    exec(line, {})
                except ImportError as error:
                    yield f"{page}:{number}: {error}"


def check_files(page: str, text: str) -> Iterator[str]:
    """Check that paths in code exist in the clone; <..>, {..} and * match anything. build/ and .nox/ are made later."""
    for number, line in _lines(text):
        for code in _CODE.findall(line):
            name = code.removeprefix("./")
            if "/" not in name or " " in name or name.startswith(("/", "~", "-", "$", "http")):
                continue
            top = name.partition("/")[0]
            if not (ROOT / top).is_dir() or top in ("build", ".nox"):
                continue
            pattern = re.sub(r"<[^>]+>|\{[^}]+\}", "*", name).rstrip("/")
            if not any(ROOT.glob(pattern)):
                yield f"{page}:{number}: there is no {name}"


def check_relative_links(page: str, text: str) -> Iterator[str]:
    """Check that links lead to a file. Sphinx builds docs/ alone, so its pages can't link to files elsewhere."""
    home = ROOT / "docs" if page.startswith("docs/") else ROOT
    for number, line in _lines(text):
        for link in _RELATIVE.findall(_CODE.sub("", line)):
            target = ((ROOT / page).parent / link).resolve()
            if not (target.exists() and target.is_relative_to(home)):
                yield f"{page}:{number}: no file in {home.name if home != ROOT else 'the clone'} has this link: {link}"


def check_exit_codes(page: str, text: str) -> Iterator[str]:
    """Check that each `SomeError` (N) is a class with code N, and that each exit code has a class."""
    codes = exit_codes()
    for number, line in _lines(text):
        for name, code in _NAMED.findall(line):
            if name not in codes:
                yield f"{page}:{number}: there is no class {name}"
            elif code and int(code) not in codes[name]:
                yield f"{page}:{number}: {name} ends with {min(codes[name])}, not with {code}"
        for code in _EXIT_CODE.findall(line):
            if int(code) not in _SHELL_CODES.union(*codes.values()):
                yield f"{page}:{number}: nothing ends with {code}"


def check_links(page: str, text: str) -> Iterator[str]:
    for number, line in _lines(text):
        for link in _LINK.findall(line):
            parts = urlsplit(link.rstrip(".,;"))
            if parts.scheme != "https" or "." not in (parts.hostname or "") or not parts.path.startswith("/"):
                yield f"{page}:{number}: not a complete https address: {link}"


@functools.cache
def exit_codes() -> dict[str, set[int]]:
    """Exit codes by class name."""
    codes: dict[str, set[int]] = {}
    for name, error in inspect.getmembers(errors, inspect.isclass):
        if issubclass(error, errors.CkPrefillError):
            codes.setdefault(name, set()).add(int(error.exit_code))
    return codes


def _lines(text: str) -> Iterator[tuple[int, str]]:
    return enumerate(prose(text).splitlines(), start=1)

"""Make text from files and names safe to show on a terminal and in Markdown.

An escape code recolours a terminal or types into it. A line break forges a line, a right-to-left mark reverses the
words around it, and Markdown in a name makes links, images and table cells. Other characters are written as Python
writes them in a string: ``\\x1b``, ``\\u202e``.
"""

from __future__ import annotations

import io
import re
import sys
from typing import TextIO

_LONGEST = 300  # characters of a text in one cell
_CUT = ".."
_LONG_LINE, _END = 2000, 500  # characters
# Beginnings of markup (CommonMark 0.31; GFM 0.29 for | and ~; $ is GitHub's, for TeX). A `_` within a word, of which
# kernels' names are full, begins none, and `&` only before what may be a character's name.
_MARKED = re.compile(r"[\\`*\[\]|~$<]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w)|(?<!\w)@(?=\w)")
_BLOCK = re.compile(r"(\d*)([-+=#>.)])")  # at a line's start: lists, headings, rules, quotes
_USER = re.compile(r"""://[^\s"<>]*@""")  # to the last @, as a password may contain some
_REFERENCES = {"&": "&amp;", "<": "&lt;", "@": "@<!-- -->"}  # a mention sends mail


def without_passwords(text: str) -> str:
    """The text with ``***`` in place of user and password of each URL."""
    return _USER.sub("://***@", text) if "://" in text else text


def printable(text: str) -> str:
    """The text with its lines and tabs, without passwords; characters that aren't printable are escaped."""
    text = without_passwords(text)
    plain = text.replace("\n", "").replace("\t", "").isprintable()
    return text if plain else "".join(character if character in "\n\t" else _escape(character) for character in text)


def one_line(text: str, most: int | None = None) -> str:
    """The text in one line, line breaks escaped as well, cut to ``most`` characters."""
    line = text if text.isprintable() else "".join(map(_escape, text))
    return line if most is None or len(line) <= most else line[: most - len(_CUT)] + _CUT


def join_lines(text: str, most: int | None = None) -> str:
    """The lines of a text joined to one by spaces; otherwise as :func:`one_line`."""
    return one_line(" ".join(text.split()), most)


def message(text: str) -> str:
    """The :func:`printable` text of an error; of very long lines only the beginning and the end."""
    return "\n".join(
        line if len(line) <= _LONG_LINE else f"{line[: _LONG_LINE - _END]} {_CUT} {line[-_END:]}"
        for line in printable(text).split("\n")
    )


def markdown(text: str) -> str:
    """The text as one line of Markdown without markup, cell borders, HTML and mentions, cut to 300 characters."""
    line = join_lines(text, _LONGEST)
    marked = _MARKED.sub(lambda match: _REFERENCES.get(match[0]) or f"\\{match[0]}", line)
    return _BLOCK.sub(r"\1\\\2", marked, count=1) if _BLOCK.match(marked) else marked


def code_span(text: str) -> str:
    """The text as code in a line of Markdown. Not for tables: readers differ about `|` in their code."""
    line = join_lines(text, _LONGEST)
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    space = " " if line[:1] in ("`", "") or line[-1:] == "`" else ""
    return f"{fence}{space}{line}{space}{fence}"


def show(text: str, *, end: str = "\n", file: TextIO | None = None, flush: bool = False) -> None:
    """Print the :func:`printable` form of a text to standard output or ``file``."""
    print(printable(text), end=end, file=file or sys.stdout, flush=flush)


def forgiving_output() -> None:
    """Make standard output and error escape characters that their encoding lacks, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a closed one is None
            stream.reconfigure(errors="backslashreplace")


def _escape(character: str) -> str:
    return character if character.isprintable() else ascii(character)[1:-1]

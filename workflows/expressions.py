"""GitHub's expressions, as far as our workflows use them: literals, contexts, comparisons, logic, six functions.

Grammar and meaning: GitHub's "Evaluate expressions in workflows and actions". Anything else is an error, never empty.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workflows.errors import WorkflowError

Context = Mapping[str, Any]
_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>\d+)|(?P<name>[A-Za-z_][\w-]*)"
    r"|(?P<mark>==|!=|&&|\|\||[!().,\[\]]))"
)
_SLOT = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
_CONSTANTS = {"true": True, "false": False, "null": None}


def filled(text: str, context: Context) -> Any:
    """A text with its ``${{ }}`` replaced; the value itself, of any type, if the text is nothing but one of them.

    Raises WorkflowError.
    """
    if (whole := _SLOT.fullmatch(text.strip())) and "${{" not in whole[1]:
        return evaluate(whole[1], context)
    return _SLOT.sub(lambda slot: as_text(evaluate(slot[1], context)), text)


def evaluate(expression: str, context: Context) -> Any:
    """Raises WorkflowError: no such syntax, function or context."""
    parser = _Parser(expression, context)
    value = parser.either()
    if parser.tokens:
        raise WorkflowError(f"{expression.strip()}: not understood at {parser.tokens[0][1]!r}.")
    return value


def truth(value: Any) -> bool:
    return bool(value) and value != ""


def as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return json.dumps(value)
    return "" if value is None else str(value)


class _Parser:
    """Recursive descent; || and && give one of their operands, as GitHub's do."""

    def __init__(self, expression: str, context: Context) -> None:
        self.expression, self.context = expression, context
        self.tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(expression.rstrip()):
            match = _TOKEN.match(expression, at)
            if match is None:
                raise WorkflowError(f"{expression.strip()}: not understood at {expression[at : at + 10]!r}.")
            self.tokens.append((str(match.lastgroup), match[str(match.lastgroup)]))
            at = match.end()

    def _take(self, *marks: str) -> str:
        if self.tokens and self.tokens[0][1] in marks and self.tokens[0][0] == "mark":
            return self.tokens.pop(0)[1]
        return ""

    def either(self) -> Any:
        value = self.both()
        while self._take("||"):
            other = self.both()
            value = value if truth(value) else other
        return value

    def both(self) -> Any:
        value = self.compared()
        while self._take("&&"):
            other = self.compared()
            value = other if truth(value) else value
        return value

    def compared(self) -> Any:
        value = self.negated()
        while mark := self._take("==", "!="):
            value = (value == self.negated()) == (mark == "==")
        return value

    def negated(self) -> Any:
        return not truth(self.negated()) if self._take("!") else self.place()

    def place(self) -> Any:
        value = self.single()
        while mark := self._take(".", "["):
            name = self.tokens.pop(0)[1] if mark == "." else self.either()
            value = value.get(name) if isinstance(value, Mapping) else None
            if mark == "[" and not self._take("]"):
                raise WorkflowError(f"{self.expression.strip()}: a ] is missing.")
        return value

    def single(self) -> Any:
        if self._take("("):
            value = self.either()
            if not self._take(")"):
                raise WorkflowError(f"{self.expression.strip()}: a ) is missing.")
            return value
        kind, word = self.tokens.pop(0) if self.tokens else ("", "the end")
        if kind == "text":
            return word[1:-1].replace("''", "'")
        if kind == "number":
            return int(word)
        if kind == "name" and self._take("("):
            return self.called(word)
        if kind == "name" and word in _CONSTANTS:
            return _CONSTANTS[word]
        if kind == "name" and word in self.context:
            return self.context[word]
        raise WorkflowError(f"{self.expression.strip()}: this runner does not know {word!r}.")

    def called(self, name: str) -> Any:
        arguments: list[Any] = []
        while not self._take(")"):
            arguments.append(self.either())
            self._take(",")
        known: dict[str, Callable[..., Any]] = {
            "fromJSON": lambda text: json.loads(text),
            "toJSON": lambda value: json.dumps(value),
            "format": lambda text, *words: re.sub(r"\{(\d+)\}", lambda slot: as_text(words[int(slot[1])]), text),
            "hashFiles": lambda *patterns: hash_files(Path(self.context["github"]["workspace"]), patterns),
            "cancelled": lambda: False,
            "success": lambda: self.context["job"]["status"] == "success",
            "failure": lambda: self.context["job"]["status"] == "failure",
            "always": lambda: True,
        }
        if name not in known:
            raise WorkflowError(f"{self.expression.strip()}: this runner does not know the function {name}.")
        return known[name](*arguments)


def hash_files(root: Path, patterns: tuple[str, ...]) -> str:
    """A digest over the files that fit, "" if none does. (GitHub's value differs; only equality matters.)"""
    whole = (f"{pattern}/*" if pattern.endswith("**") else pattern for pattern in patterns)
    files = sorted({file for pattern in whole for file in root.glob(pattern) if file.is_file()})
    digest = hashlib.sha256()
    for file in files:
        digest.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest() if files else ""

"""Rules of the house style that a program can check. CONTRIBUTING.md lists all rules.

`python -m tests.unit.style PATH...` prints each line that breaks a rule as `file:line: rule: text`.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUFFIXES = {".py", ".cpp", ".h", ".hpp", ".hip", ".yaml", ".yml", ".md", ".j2"}
# data, and the texts of the rules
EXCLUDED = (
    *("matrix/golden", "reports/baselines", "tests/unit/style.py", "tests/unit/test_style.py", "LICENSE"),
    # a changed byte is another identity of the toolchain, with which accepted baselines are not comparable
    *("ckpm_emulator/include/", "ckpm/kernels/code/toolchains/offload_bundler.py"),
)
NAME_LIMIT = 60
SENTENCE_LIMIT = 30  # words: the aim is 20

# A docstring begins with a verb or names the value.
OPENINGS = re.compile(
    r"(What|Who|Whose|Whom|Which|Where|Whether|When|How|Why|Of|That|Those|This|These|It|For|In|On|At|By|With|From|To|As"
    r"|Nobody|Nothing|Nowhere|Behind|So)\b(?!-)"
)
WORDS = {
    "is not a": re.compile(
        r"\b(?<!there )(is|are|was|were|be) no (?!longer|more|less|fewer|greater|better|worse|larger|smaller)", re.I
    ),
    "after": re.compile(r"\bbehind\b", re.I),
    "no one": re.compile(r"\bnobody\b", re.I),
    "fix": re.compile(r"\bmend(s|ed|ing)?\b", re.I),
    "contain, list, report": re.compile(r"\b(says|tells|speaks|knows)\b", re.I),
    "reads, checks": re.compile(r"\b(is|are|was|were|be|been) asked\b", re.I),
    "version": re.compile(r"\bages?\b", re.I),
}
PARTICIPLES = re.compile(r"_*(figures?|places?|words?|ones?|whose|what|who|how|[a-z]+(?<!e)ed|[a-z]+ing)$")
# nouns and verbs that only look like participles
NOT_PARTICIPLES = (
    "bed binding bring casting embed encoding heading king led mapping packing padding parsing ping pricing red "
    "rendering ring rounding sampling scaling sed setting shed spelling spread spring string thing timing warning wed"
)
# Variables hold something: each has the noun of what it holds.
NO_NAMES = {
    *(
        "one",
        "found",
        "words",
        "place",
        "given",
        "over",
        "said",
        "made",
        "known",
        "ours",
        "mine",
        "theirs",
        "asked",
        "told",
    )
}
ANY_WORD = re.compile("|".join(f"(?:{pattern.pattern})" for pattern in WORDS.values()), re.I)
CODE = re.compile(r"```.*?```|`[^`]*`|<[^>]*>|https?://\S+|\([^()]*\.md[^()]*\)", re.S)


@dataclass(frozen=True)
class Finding:
    file: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.rule}: {self.text}"


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """The sentences of prose without its code, tables and headings, each with the row of its paragraph."""
    text = CODE.sub(lambda code: "x" + "\n" * code[0].count("\n"), text)
    for paragraph in re.finditer(r"(?:(?!\n\s*\n|\n\s*(?:[-*|#>:]|\d+\.)).)+", text, re.S):
        if paragraph[0].lstrip().startswith(("|", "#", ">", "    ")):
            continue
        row = text[: paragraph.end()].count("\n") - paragraph[0].strip().count("\n")
        for sentence in re.split(r"(?<=[.!?:;])\s+(?=[A-Z`x])", " ".join(paragraph[0].split())):
            yield row, sentence


def check_prose(file: str, line: int, text: str) -> Iterator[Finding]:
    """Words that the project replaces, in prose without its code."""
    prose = re.sub(r"`[^`\n]*`|\w+(?:-\w+){2,}", lambda code: "x" * len(code[0]), text)  # code, names-with-hyphens
    for rule, pattern in WORDS.items():
        for match in pattern.finditer(prose):
            row = prose[: match.start()].count("\n")
            yield Finding(file, line + row, rule, text.split("\n")[row].strip())


def check_length(file: str, line: int, text: str) -> Iterator[Finding]:
    """Sentences over the limit of words, or with more than one semicolon."""
    for row, sentence in sentences(text):
        if len(sentence.split()) > SENTENCE_LIMIT or sentence.count(";") > 1:
            yield Finding(file, line + row, "one idea a sentence", sentence[:100])


def check_names(file: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Finding]:
    """Names of functions: verbs or values; tests at most 60 characters."""
    decorators = {ast.unparse(each).split("(")[0].rpartition(".")[2] for each in node.decorator_list}
    if node.name.startswith("test_"):
        if len(node.name) > NAME_LIMIT:
            yield Finding(file, node.lineno, "test name of 60 characters", node.name)
    elif not decorators & {"property", "cached_property", "fixture", "setter", "jit"}:
        match = PARTICIPLES.match(node.name)
        if match and match[1] not in NOT_PARTICIPLES.split():
            yield Finding(file, node.lineno, "a function is a verb or a value", node.name)


def stored_name(node: ast.AST) -> str | None:
    """The name that a node gives to a value: a variable, a parameter, what follows ``as``."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.alias(asname=name):
            return name
        case ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
            return name
    return None


def repeated_classes(sources: Mapping[str, str]) -> Iterator[Finding]:
    """Classes of a distribution whose name another of its classes has."""
    first: dict[str, str] = {}
    for file, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef) and first.setdefault(node.name, file) != file:
                yield Finding(file, node.lineno, "a class name is unique", f"{node.name} is in {first[node.name]}, too")


def check_python(file: str, source: str) -> Iterator[Finding]:
    """Docstrings, names, comments and strings of a Python file."""
    for node in ast.walk(ast.parse(source)):
        if (name := stored_name(node)) in NO_NAMES:
            line = getattr(node, "lineno", 0)
            yield Finding(file, line, "a variable is named for what it holds", str(name))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from check_names(file, node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            text = ast.get_docstring(node)
            if text is not None:
                line = node.body[0].lineno
                if OPENINGS.match(text):
                    yield Finding(file, line, "a docstring begins with a verb or names the value", text.splitlines()[0])
                yield from check_length(file, line, text)
    if not ANY_WORD.search(source):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from check_prose(file, token.start[0], token.string)
        elif token.type == tokenize.STRING:
            is_format = "f" in token.string[: token.string.index(token.string[-1])].lower()
            text = re.sub(r"\{[^{}]*\}", "x", token.string) if is_format else token.string
            yield from check_prose(file, token.start[0], text)


def check_cpp(file: str, source: str) -> Iterator[Finding]:
    """Comments and messages of a C++ file."""
    for number, row in enumerate(source.splitlines(), 1):
        for part in re.findall(r"//.*|/\*.*|^\s*\*.*|\"(?:[^\"\\]|\\.)*\"", row):
            yield from check_prose(file, number, part)


def check(path: Path) -> list[Finding]:
    """Check one file."""
    file, source = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
    if path.suffix == ".py" or path.name == "SConstruct":
        return list(check_python(file, source))
    if path.suffix in (".cpp", ".h", ".hpp", ".hip"):
        return list(check_cpp(file, source))
    prose = re.sub(r"^```.*?^```", lambda block: "\n" * block[0].count("\n"), source, flags=re.S | re.M)
    findings = list(check_prose(file, 1, prose))
    if path.suffix == ".md":
        findings += check_length(file, 1, prose)
    return findings


def files(paths: Sequence[str] = (".",)) -> list[Path]:
    """The files of git below some paths to which the style applies."""
    command = ["git", "ls-files", "--", *paths]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [
        ROOT / name
        for name in listed.splitlines()
        if (Path(name).suffix in SUFFIXES or name == "SConstruct")
        and not any(part in name for part in EXCLUDED)
        and (ROOT / name).is_file()
    ]


if __name__ == "__main__":
    findings = [each for path in files(sys.argv[1:] or (".",)) for each in check(path)]
    print(*findings, sep="\n")
    sys.exit(bool(findings))

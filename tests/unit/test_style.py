"""The rules of the house style: each is seen to fail on a bad text, and all hold for the repository."""

from __future__ import annotations

import pytest

from tests.unit import style
from tests.unit.sources import PACKAGES, sources
from tests.unit.style import Finding

GOOD = '''"""The waits of a kernel. There is no limit: `nobody` is code."""


def read_kernel(name: str) -> str:
    """Return the text of a kernel, no longer than a page."""
    # one is not a file, see the entry reads-behind-the-pool
    return f"{name.behind}: must not be negative"


def string() -> str:
    return "ahead, fixed"


def test_read_kernel_without_file_raises() -> None: ...
'''


def rules(findings: list[Finding]) -> list[str]:
    return [finding.rule for finding in findings]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("a list is no library", "is not a"),
        ("the call behind the wait", "after"),
        ("Nobody reads it", "no one"),
        ("mend the file", "fix"),
        ("the file says so", "contain, list, report"),
        ("the device is asked", "reads, checks"),
        ("a new age of CK", "version"),
    ],
)
def test_check_prose_finds_replaced_words(text: str, rule: str) -> None:
    findings = [Finding("a", 8, rule, text)]
    assert list(style.check_prose("a", 7, f"good\n{text}")) == findings
    assert list(style.check_python("a", f"good = 1\n\n\n\n\n\n\n# {text}\n")) == [Finding("a", 8, rule, f"# {text}")]
    assert rules(list(style.check_cpp("a", f"call(); // {text}\n"))) == [rule]
    assert rules(list(style.check_cpp("a", f'throw Error("{text}");\n'))) == [rule]
    assert list(style.check_prose("a", 7, f"`{text}`")) == []
    assert list(style.check_cpp("a", f"{text};\n")) == []


@pytest.mark.parametrize("opening", ["What", "How", "Whether", "Of", "That", "Those", "By", "Nobody"])
def test_check_python_finds_docstring_openings(opening: str) -> None:
    for source in ('"""{} it does."""\n', 'def read() -> None:\n    """{} it does."""\n'):
        broken_rules = rules(list(style.check_python("a", source.format(opening))))
        assert broken_rules[0] == "a docstring begins with a verb or names the value"


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("def _judged() -> int: ...", "a function is a verb or a value"),
        (f"def test_{'a' * 56}() -> None: ...", "test name of 60 characters"),
        ("kernels = [found for found in range(3)]", "a variable is named for what it holds"),
        ("def read(*, given: int) -> int: ...", "a variable is named for what it holds"),
        ("class A:\n    place: str", "a variable is named for what it holds"),
        (f'"""One{" word" * style.SENTENCE_LIMIT}."""', "one idea a sentence"),
        ('"""One; two; three."""', "one idea a sentence"),
    ],
)
def test_check_python_finds_names_and_long_sentences(source: str, rule: str) -> None:
    assert rules(list(style.check_python("a", source))) == [rule]


def test_check_python_accepts_good_source() -> None:
    assert list(style.check_python("a", GOOD)) == []


def test_check_length_names_line_of_paragraph() -> None:
    text = "# A; b; c\n\n```\ncode; code;\ncode;\n```\n\nShort.\n\n- item\n- One; two;\n  three.\n\n| a; b; c |\n"
    assert [finding.line for finding in style.check_length("a", 1, text)] == [11]


def test_repeated_classes_finds_second_class() -> None:
    texts = {"a.py": "class A: ...\nclass B: ...\n", "b.py": "class C:\n    class A: ...\n"}
    assert list(style.repeated_classes(texts)) == [Finding("b.py", 2, "a class name is unique", "A is in a.py, too")]


@pytest.mark.parametrize("package", PACKAGES)
def test_class_names_of_distribution_are_unique(package: str) -> None:
    texts = {file: text for file, text in sources().items() if file.startswith(f"{package}/")}
    assert list(map(str, style.repeated_classes(texts))) == []


def test_repository_follows_style() -> None:
    findings = [str(finding) for file in style.files() for finding in style.check(file)]
    assert findings == [], "fix the text, or run `python -m tests.unit.style FOLDER` for all of a folder"

"""Write the tables of docs/reference/sessions.md from noxfile.py: ``python -m tests.docs.sessions``."""

from __future__ import annotations

import functools
import importlib.util
from types import ModuleType

import nox.registry

from tests.docs.pages import ROOT

PAGE = ROOT / "docs/reference/sessions.md"
BEGIN, END = "<!-- sessions: python -m tests.docs.sessions -->", "<!-- sessions end -->"


@functools.cache
def noxfile() -> ModuleType:
    """Import noxfile.py, which registers its sessions in nox."""
    spec = importlib.util.spec_from_file_location("noxfile", ROOT / "noxfile.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tables() -> str:
    """A table of sessions for each group, and a table of the tests that `nox -s tests` runs by name."""
    module = noxfile()
    groups: dict[str, list[str]] = {"use": [], "develop": [], "ship": []}
    for name, session in nox.registry.get().items():
        what = " ".join((session.func.__doc__ or "").split())
        groups[session.tags[0]].append(f"| `{name}` | {what} |")
    lines = []
    for group, rows in groups.items():
        lines += [f"### To {group}", "", "| session | what it does |", "| --- | --- |", *rows, ""]
    lines += ["### Tests by name", "", "| `nox -s tests --` | what it tests |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| `{name}` | {one.what} |" for name, one in module.TESTS.items())])


def with_tables(page: str) -> str:
    """Return the page with new tables between its marks."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{tables()}\n{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

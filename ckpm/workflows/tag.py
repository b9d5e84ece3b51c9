"""Fail if a tag is not the version of this commit: ``python -m ckpm.workflows.tag vX.Y.Z``. Standard library only.

The version is `__version__` of ckpm/__init__.py. What is built apart from it repeats it, and is compared.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATTERNS = {
    "ckpm/__init__.py": r'^__version__ = "(.+)"',
    "pyproject.toml": r'^  "ckpm-emulator==(.+)"',
    "emulator/pyproject.toml": r'^version = "(.+)"',
    "reports/release/prebuilt/ckpm_libraries/__init__.py": r'^__version__ = "(.+)"',
}


def complaints(tag: str, root: Path = ROOT) -> list[str]:
    """A line for each file that has another version than the tag."""
    lines = []
    for file, pattern in PATTERNS.items():
        versions = re.findall(pattern, (root / file).read_text(encoding="utf-8"), re.MULTILINE)
        if [f"v{version}" for version in versions] != [tag]:
            lines.append(f"{file}: version {', '.join(versions) or 'missing'}, and the tag is {tag}")
    return lines


if __name__ == "__main__":
    differences = complaints(sys.argv[1])
    print("\n".join(differences) or f"{sys.argv[1]} is the version of {', '.join(PATTERNS)}")
    sys.exit(1 if differences else 0)

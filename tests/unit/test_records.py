"""A record that crosses rooms is read in one place: nobody else takes JSON apart."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("matrix", "kernels", "reports", "emulator", "dispatcher", "suites")
# What each of these reads is written by its own room, and nobody else reads it.
READERS = {
    "base/records.py": "every record",
    "base/bounded.py": "what others read, within bounds",
    "matrix/configurations/configuration.py": "a user's own configuration",
    "bench/build.py": "events of the build",
    "kernels/library/failures.py": "failures of the build's steps",
    "kernels/library/finished.py": "the build's steps that are done",
    "kernels/library/plan.py": "the build's plan",
    "kernels/library/progress.py": "events of the build",
    "kernels/library/signature_file.py": "SCons's signatures as it sealed them",
    "kernels/upstream/headers.py": "the states of headers that it recorded",
    "matrix/changes/comparison.py": "answers of its snapshot",
    "matrix/changes/snapshot.py": "questions of its comparison",
    "emulator/ckpm_emulator/device.py": "answers of the core",
    "emulator/ckpm_emulator/inspection/inspect.py": "its own cache",
    "suites/pool.py": "replies of its workers",
    "suites/worker.py": "requests of its pool",
}


def holding(pattern: str) -> set[str]:
    files = (file for room in ROOMS for file in (ROOT / room).rglob("*.py"))
    return {str(file.relative_to(ROOT)) for file in files if re.search(pattern, file.read_text())}


def test_json_is_read_by_those_who_wrote_it() -> None:
    assert holding(r"\bjson\.loads?\(|\bparse_json\(") - set(READERS) == set()


def test_no_text_of_a_case_is_parsed_back() -> None:
    reads = r"\.text\.(splitlines|partition|split)|re\.\w+\([^)]*\.text\b|\.suite\.(removeprefix|removesuffix|split)"
    assert holding(reads) & {file for file in holding("results import") if file.startswith("reports/")} == {
        "reports/page/sections.py"  # lines of parity's text as details, unread
    }

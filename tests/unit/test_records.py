"""Only the listed files read JSON: a record that crosses rooms is read by base/records.py."""

from __future__ import annotations

import re

from tests.unit.sources import sources

# Each of the other files reads JSON that its own room writes.
READERS = {
    "base/records.py": "every record",
    "base/bounded.py": "JSON for the other readers, within bounds",
    "matrix/configurations/configuration.py": "a user's own configuration",
    "bench/build.py": "events of the build",
    "kernels/library/command.py": "failures of the build's steps",
    "kernels/library/finished.py": "the build's steps that are done",
    "kernels/library/plan.py": "the build's plan",
    "kernels/library/progress.py": "events of the build",
    "kernels/library/signature_file.py": "SCons's signatures, sealed by this file",
    "kernels/upstream/headers.py": "the states of headers that it recorded",
    "kernels/changes/manifest.py": "questions and answers of its own processes",
    "emulator/ckpm_emulator/device.py": "answers of the core",
    "emulator/ckpm_emulator/inspection/inspect.py": "its own cache",
    "suites/pool.py": "replies of its workers",
    "suites/worker.py": "requests of its pool",
}


def find_files(pattern: str) -> set[str]:
    return {name for name, text in sources().items() if re.search(pattern, text)}


def test_json_is_read_by_listed_files() -> None:
    files = find_files(r"\bjson\.loads?\(|\bparse_json\(")
    assert {name for name in files if not name.startswith("workflows/")} - set(READERS) == set()


def test_texts_of_cases_are_not_parsed() -> None:
    reads = r"\.text\.(splitlines|partition|split)|re\.\w+\([^)]*\.text\b|\.suite\.(removeprefix|removesuffix|split)"
    assert find_files(reads) & {file for file in find_files("results import") if file.startswith("reports/")} == {
        "reports/page/sections.py"  # shows lines of parity's text, without parsing them
    }

"""Only the listed files read JSON: a record that crosses rooms is read by ckpm/base/records.py."""

from __future__ import annotations

import re

from tests.unit.sources import sources

# Each of the other files reads JSON that its own room writes.
READERS = {
    "ckpm/base/records.py": "every record",
    "ckpm/base/bounded.py": "JSON for the other readers, within bounds",
    "ckpm/matrix/configurations/configuration.py": "a user's own configuration",
    "ckpm/bench/build.py": "events of the build",
    "ckpm/kernels/library/failures.py": "failures of the build's steps",
    "ckpm/kernels/library/finished.py": "the build's steps that are done",
    "ckpm/kernels/library/plan.py": "the build's plan",
    "ckpm/kernels/library/progress.py": "events of the build",
    "ckpm/kernels/library/signature_file.py": "SCons's signatures, sealed by this file",
    "ckpm/kernels/upstream/headers.py": "the states of headers that it recorded",
    "ckpm/kernels/changes/manifest.py": "questions and answers of its own processes",
    "emulator/ckpm_emulator/device.py": "answers of the core",
    "emulator/ckpm_emulator/inspection/inspect.py": "its own cache",
    "ckpm/suites/pool.py": "replies of its workers",
    "ckpm/suites/worker.py": "requests of its pool",
    "ckpm/session_options.py": "the noxfile's commands",
    "ckpm/kernels/upstream/package_index.py": "pages of an index, before unearth reads them",
}


def find_files(pattern: str) -> set[str]:
    return {name for name, text in sources().items() if re.search(pattern, text)}


def test_json_is_read_by_listed_files() -> None:
    files = find_files(r"\bjson\.loads?\(|\bparse_json\(")
    assert {name for name in files if not name.startswith("ckpm/workflows/")} - set(READERS) == set()


def test_texts_of_cases_are_not_parsed() -> None:
    reads = r"\.text\.(splitlines|partition|split)|re\.\w+\([^)]*\.text\b|\.suite\.(removeprefix|removesuffix|split)"
    assert find_files(reads) & {file for file in find_files("results import") if file.startswith("ckpm/reports/")} == {
        "ckpm/reports/page/sections.py"  # shows lines of parity's text, without parsing them
    }

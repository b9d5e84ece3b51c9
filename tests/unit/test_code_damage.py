"""The fuzz session damages each part of a code object, and finds a launch that crashes."""

from __future__ import annotations

import random

import pytest

from tests.fuzz.code_damage import CODE, PARTS, parts
from tests.fuzz.compiled import prepare_code


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("damage") / "code"
    prepare_code(folder)
    return (folder / "code.co").read_bytes()


def test_code_object_has_each_part(code: bytes) -> None:
    ranges = parts(code)
    assert set(ranges) == set(PARTS)
    assert len(ranges["descriptors"]) == 2  # of two kernels
    start, _ = ranges["header"][0]
    assert code[start : start + 4] == b"\x7fELF"
    start, end = ranges["notes"][0]
    assert b"amdhsa.kernels" in code[start:end]


@pytest.mark.parametrize("at", range(len(CODE)), ids=PARTS)
def test_damage_stays_in_its_part(at: int, code: bytes) -> None:
    places = parts(code)[PARTS[at]]
    changed = set()
    for seed in range(50):
        damaged = CODE[at](code, random.Random(seed))
        assert len(damaged) == len(code)
        changed |= {offset for offset, (old, new) in enumerate(zip(code, damaged, strict=True)) if old != new}
    assert changed
    assert all(any(start <= offset < end for start, end in places) for offset in changed)


def test_damage_of_no_code_object_is_made_anyway() -> None:
    assert CODE[0](b"", random.Random(1)) is not None
    assert len(CODE[0](b"not an ELF", random.Random(1))) == 10

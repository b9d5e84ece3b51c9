"""A library that is damaged, of another arch or short of its waits never passes, and what is wrong is said.

The suites run on copies of one real library whose bytes were changed.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from ckpm import commands as cli
from ckpm.base.files import sha256_of
from ckpm.base.paths import PROJECT
from ckpm.base.results import Results
from ckpm.kernels.code import code_object as codeobject
from ckpm.kernels.library.request import LIBRARY
from ckpm.suites.pool import Worker
from ckpm.suites.suites import Case, cases
from ckpm_emulator.lowering.decode import decode

ARCH = "gfx950"
NOP = (0xBF800000).to_bytes(4, "little")  # s_nop 0, SOPP of the CDNA3 and CDNA4 ISA documents
Damage = Callable[[Path], bytes]  # of the whole library


@pytest.fixture
def run(built: Path, tmp_path: Path) -> Callable[..., tuple[int, list[str]]]:
    """``run(damage, options...)``: the exit code of a suite on a damaged copy, and its cases' outcomes as recorded."""

    def call(damage: Damage, *options: str) -> tuple[int, list[str]]:
        shutil.copy(built / "manifest.json", tmp_path)
        (tmp_path / LIBRARY).write_bytes(damage(built / LIBRARY))
        library_options = ["--arch", ARCH, "--device", "emulator", "--library", str(tmp_path / LIBRARY)]
        results = tmp_path / "results.json"
        code = cli.main(["test", *library_options, "--output", str(results), *options])
        cases = Results.read(results).cases if results.exists() else ()
        return code, [case.outcome for case in cases]

    return call


def in_code_objects(library: Path, change: Callable[[bytearray], None]) -> bytes:
    """The library with each code object of ARCH changed in its place."""
    changed = bytearray(library.read_bytes())
    for image in codeobject.bundles(library)[ARCH]:
        at = changed.index(image)
        part = bytearray(image)
        change(part)
        assert len(part) == len(image)
        assert part != image
        changed[at : at + len(image)] = part
    return bytes(changed)


def without(instruction: str) -> Damage:
    """Every such instruction becomes an s_nop."""

    def change(image: bytearray) -> None:
        text = ELFFile(io.BytesIO(image)).get_section_by_name(".text")
        for decoded in decode(text.data(), text["sh_offset"]):
            if decoded.name == instruction:
                image[decoded.pc : decoded.pc + 4] = NOP

    return lambda library: in_code_objects(library, change)


def cut(image: bytearray) -> None:
    half = len(image) // 2
    image[half:] = bytes(len(image) - half)


# ---- what the sanitizer is for

SANITIZE = ("--suite", "sanitize", "--case", "plain.m64-full-*")


def test_kernel_as_compiled_passes(run: Callable[..., tuple[int, list[str]]]) -> None:
    assert run(Path.read_bytes, *SANITIZE) == (0, ["passed"] * 3)


@pytest.mark.parametrize("instruction", ["s_waitcnt", "s_barrier"])
def test_kernel_without_waits_or_barriers_fails_every_case(
    run: Callable[..., tuple[int, list[str]]], instruction: str
) -> None:
    assert run(without(instruction), *SANITIZE) == (8, ["failed"] * 3)


def test_fault_message_does_not_depend_on_workers(run: Callable[..., tuple[int, list[str]]], tmp_path: Path) -> None:
    """Earlier cases don't change it either: both could show in the addresses and numbers of allocations."""

    def fault_texts(*options: str) -> dict[str, object]:
        code, outcomes = run(Path.read_bytes, "--suite", "page-fault", *options)
        assert (code, set(outcomes)) == (0, {"passed"})  # known defects of the ledger
        return {
            case.name: (case.text, case.fault and case.fault.message)
            for case in Results.read(tmp_path / "results.json").cases
        }

    expected = fault_texts("--case", "lengths.m64-*", "-j", "1")
    assert len(expected) > 5
    assert all("allocation" in str(texts) for texts in expected.values())
    assert fault_texts("--case", "lengths.m64-*", "-j", "2") == expected
    last = list(expected)[-1]
    assert fault_texts("--case", last.partition("/")[2]) == {last: expected[last]}


# ---- libraries that can't be used

ONE = ("--suite", "sanitize", "--case", "plain.m64-full-q40k100")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda library: library.read_bytes()[:200_000], f"{LIBRARY} is truncated"),
        (lambda library: b"#!/bin/sh\n", f"{LIBRARY} is not a shared library"),
        (
            lambda library: library.read_bytes().replace(
                b"\0hipGetDevicePropertiesR0600", b"\0hipGetDevicePropertiesR0999"
            ),
            "undefined symbol: hipGetDevicePropertiesR0999",
        ),
    ],
)
def test_library_that_cannot_be_loaded_is_refused(
    run: Callable[..., tuple[int, list[str]]], capsys: pytest.CaptureFixture[str], damage: Damage, message: str
) -> None:
    assert run(damage, *ONE) == (6, [])
    assert message in capsys.readouterr().err


def test_damaged_code_object_is_error_with_its_reason(
    run: Callable[..., tuple[int, list[str]]], tmp_path: Path
) -> None:
    assert run(lambda library: in_code_objects(library, cut), *ONE) == (8, ["error"])
    (row,) = Results.read(tmp_path / "results.json").cases
    assert f"{LIBRARY}: code object: no AMDGPU metadata note: was it stripped?" in row.message


# ---- a fault and what comes after it


def test_worker_launches_after_fault(built: Path) -> None:
    setup = {
        "device": "emulator",
        "arch": ARCH,
        "library": str(built / LIBRARY),
        "manifest": str(built / "manifest.json"),
        "threads": 1,
        "hazards": False,
        "family": "batch_prefill",
        "sha256": sha256_of(built / LIBRARY),
    }
    worker = Worker([sys.executable, "-m", "ckpm.suites.worker", json.dumps(setup)], {"PYTHONPATH": str(PROJECT)}, 600)
    try:
        good, bad = case("sanitize", "plain.m64-full-q64k300"), case("page-fault", "lengths.m64-q64k33")
        replies = [worker.run(test_case) for test_case in (good, bad, good, bad, good)]
        assert [reply["outcome"] for reply in replies] == ["passed", "fault", "passed", "fault", "passed"]
        assert replies[1]["fault"]["kind"] == "memory"
        assert worker.alive  # the same process all along
    finally:
        worker.stop()


def case(suite: str, name: str) -> Case:
    (only_case,) = cases(suite, "smoke", "hip", name)
    return only_case

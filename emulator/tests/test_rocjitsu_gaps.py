"""The table of rocjitsu's 117 gaps names tests that exist, and each gap once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tinygrad.runtime.autogen.amd.cdna import enum

from ckpm_emulator.lowering.opcodes import SUPPORTED, micro_op_name

HERE = Path(__file__).parent
TABLE: dict[str, dict[str, Any]] = yaml.safe_load((HERE / "rocjitsu_gaps.yaml").read_text())
# Resolved in rocjitsu before that audit: its table has them no more.
RESOLVED = {f"CDNA4-RJ-{n:03}" for n in (14, 15, 16, 18, 27, 120, 121, 123, 125)}


def complaint(test: str) -> str:
    """The reason why a test is missing; empty if it exists."""
    file, _, function = test.partition("::")
    path = HERE / file
    there = path.is_file() and f"\ndef {function}(" in path.read_text()
    return "" if there else f"{test}: no such test"


def complaint_of_opcode(case: str, *, supported: bool = True) -> str:
    """The reason why an encoding and opcode are not in the tables, or not as supported as this; empty if they are."""
    encoding, _, opcode = case.partition("-")
    enumeration: Any = getattr(enum, f"{encoding}Op")
    names = {str(op.name).lower() for op in enumeration}
    if not {opcode, f"{opcode}_e32", f"{opcode}_e64"} & names:
        return f"{case}: no such opcode"
    return "" if (micro_op_name(opcode) in SUPPORTED) is supported else f"{case}: {'refused' if supported else 'runs'}"


@pytest.mark.parametrize("gap", TABLE)
def test_gap_is_tested_or_named_as_missing(gap: str) -> None:
    entry = TABLE[gap]
    assert set(entry) <= {"what", "opcodes", "tested", "refused", "missing"}
    assert entry["what"]
    assert entry.keys() & {"opcodes", "tested", "refused", "missing"}
    assert [text for test in entry.get("tested", ()) if (text := complaint(test))] == []
    assert [text for case in entry.get("opcodes", ()) if (text := complaint_of_opcode(case))] == []
    assert [text for case in entry.get("refused", ()) if (text := complaint_of_opcode(case, supported=False))] == []


def test_all_of_audit_are_there() -> None:
    assert len(TABLE) == 117
    assert all(re.fullmatch(r"CDNA4-RJ-\d{3}", gap) for gap in TABLE)
    assert not RESOLVED & set(TABLE)


def test_name_of_no_test_or_opcode_is_noticed() -> None:
    for test in ("test_none.py::test_x", "test_device_semantics.py::test_x"):
        assert complaint(test) == f"{test}: no such test"
    for supported in (True, False):
        assert complaint_of_opcode("VOP2-v_add_f33", supported=supported) == "VOP2-v_add_f33: no such opcode"
    assert complaint_of_opcode("SOPP-s_sendmsghalt") == "SOPP-s_sendmsghalt: refused"
    assert complaint_of_opcode("DS-ds_read_addtid_b32", supported=False) == "DS-ds_read_addtid_b32: runs"

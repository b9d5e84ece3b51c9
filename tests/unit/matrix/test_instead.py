"""Every known defect of an upstream's batch prefill has a case that ckpm must pass, and ckpm has no known defect.

The table is tests/prefill/instead.py. Its cases are run by ``nox -s tests -- prefill``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest

from ckpm.matrix.dialects import dialect, upstreams
from ckpm.matrix.enumeration import enumerate_keys
from ckpm.matrix.problems.ledger import Ledger, LedgerEntry, read_ledger
from ckpm.matrix.problems.tables import find
from ckpm.matrix.sessions import FAMILY_SUITE
from tests.prefill.copies import HEADERS
from tests.prefill.defects import DEFECTS, Edit
from tests.prefill.instead import ARCH, EXTENDED, INSTEAD, UPSTREAM, V3, kernels_for

ARCHS = ("gfx942", "gfx950")


def complaints(ledger: Ledger, table: Mapping[str, str]) -> list[str]:
    """List what the table lacks to have a case for each defect of batch prefill's suites."""
    entries = {entry.name: entry for entry in ledger.entries if not of_families(entry)}
    messages = [f"{name}: no case in tests/prefill/instead.py" for name in entries if name not in table]
    messages += [f"{name}: no such entry in matrix/ledger.yaml" for name in table if name not in entries]
    for name, case in table.items():
        problem = find(case)
        if name in entries and not covers_case(entries[name], case):
            messages.append(f"{name}: the entry does not cover {case}")
        for arch in ARCHS:
            if entry := ledger.find(problem, UPSTREAM, arch, unwaited=True):
                messages.append(f"{name}: {entry.name} excuses {UPSTREAM} for {case}")
    return messages


def of_families(entry: LedgerEntry) -> bool:
    """Return True if the entry covers other families' kernels, of which ckpm has none of its own."""
    return all(glob.startswith(f"{FAMILY_SUITE}/") for glob in entry.problems)


def covers_case(entry: LedgerEntry, case: str) -> bool:
    archs = ARCHS if "*" in entry.archs else entry.archs
    return all(
        entry.covers(find(case), upstream, arch, unwaited=True) for upstream in entry.upstreams for arch in archs
    )


def test_every_entry_has_its_case() -> None:
    assert complaints(read_ledger(), INSTEAD) == []


def test_no_entry_speaks_of_ckpm() -> None:
    assert [entry.name for entry in read_ledger().entries if {UPSTREAM, "*"} & set(entry.upstreams)] == []
    assert UPSTREAM in upstreams()


def test_problems_name_entries_and_cases_without_partner() -> None:
    ledger = read_ledger()
    name = "kv-pool-over-4-gb"
    assert complaints(ledger, {defect: case for defect, case in INSTEAD.items() if defect != name}) == [
        f"{name}: no case in tests/prefill/instead.py"
    ]
    assert complaints(ledger, {**INSTEAD, "fixed": "large-kv/batches.ps1-g8-b4"}) == [
        "fixed: no such entry in matrix/ledger.yaml"
    ]
    other = "large-kv/scattered.g1-random-full"  # a pool of 1 GB
    assert complaints(ledger, {**INSTEAD, name: other}) == [f"{name}: the entry does not cover {other}"]
    more = tuple(
        dataclasses.replace(entry, upstreams=(*entry.upstreams, UPSTREAM)) if entry.name == name else entry
        for entry in ledger.entries
    )
    (message, *_) = complaints(dataclasses.replace(ledger, entries=more), INSTEAD)
    assert message == f"{name}: {name} excuses {UPSTREAM} for {INSTEAD[name]}"


@pytest.mark.parametrize("arch", ARCHS)
def test_ckpm_has_kernels_for_every_case(arch: str) -> None:
    keys = tuple(enumerate_keys(dialect("rocm-libraries-2026").family("batch_prefill"), arch=arch))
    for case in (*INSTEAD.values(), *(defect.case for defect in DEFECTS.values() if defect.upstream == UPSTREAM)):
        assert kernels_for(find(case), keys), case


def stands_once(edit: Edit) -> bool:
    return (Path(__file__).parents[3] / HEADERS / edit.header).read_text().count(edit.old) == 1


def test_planted_defects_fit_once_and_have_one_kernel() -> None:
    keys = {
        upstream: tuple(enumerate_keys(dialect(upstreams()[upstream].dialect).family("batch_prefill"), arch=ARCH))
        for upstream in (UPSTREAM, V3, EXTENDED)
    }
    for name, defect in DEFECTS.items():
        assert all(map(stands_once, defect.edits)), name
        (key,) = kernels_for(find(defect.case), keys[defect.upstream])
        assert (key.pipeline == "qr_async_trload_v3") == defect.of_v3, name

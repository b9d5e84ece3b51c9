"""doctor says what is there, what is not, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernels import doctor, jobs
from kernels.doctor import examine


def states(findings: list[doctor.Finding]) -> dict[str, str]:
    return {finding.subject: finding.state for finding in findings}


def test_a_bare_machine_is_fit_to_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.rocm, "locate", lambda: None)
    found = examine(tmp_path, None)
    assert states(found)["toolchain embedded"] == "ok"
    assert states(found)["toolchain rocm"] == "missing"
    assert states(found)["upstream aiter"] == "missing"
    assert "broken" not in states(found).values()
    assert all(finding.advice for finding in found if finding.state != "ok")


def test_a_ck_root_that_is_no_tree_is_broken(tmp_path: Path) -> None:
    finding = next(f for f in examine(tmp_path, tmp_path / "nowhere") if f.subject == "upstream checkout")
    assert finding.state == "broken"
    assert "Point CK_ROOT" in finding.advice


def test_too_little_memory_for_a_merged_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "available_bytes", lambda: 900_000_000)
    finding = next(f for f in examine(tmp_path, None) if f.subject == "jobs")
    assert (finding.state, finding.advice) == ("broken", "a merged unit takes 1.4 GB: build with --unit-size 1")


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda place: type("Usage", (), {"free": 1_000_000})())
    finding = next(f for f in examine(tmp_path, None) if f.subject == "cache")
    assert finding.state == "broken"
    assert "set CKPM_CACHE to another disk" in finding.advice

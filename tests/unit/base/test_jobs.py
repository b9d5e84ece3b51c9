"""The number of jobs is limited by processors and by memory, in a container, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckpm.base import jobs


def machine(root: Path, available_kib: int, limit: str | None = None, used: str = "0") -> Path:
    (root / "proc").mkdir()
    (root / "proc/meminfo").write_text(f"MemTotal: 99999999 kB\nMemAvailable: {available_kib} kB\n")
    if limit is not None:
        (root / "sys/fs/cgroup").mkdir(parents=True)
        (root / "sys/fs/cgroup/memory.max").write_text(limit)
        (root / "sys/fs/cgroup/memory.current").write_text(used)
    return root


@pytest.mark.parametrize(
    ("available_gb", "limit", "used", "processors", "expected"),
    [
        (24, None, "0", 2, 2),
        (24, None, "0", 64, 17),
        (2, None, "0", 8, 1),
        (0.5, None, "0", 8, 1),
        (24, "6000000000", "0", 8, 4),
        (24, "6000000000", "4000000000", 8, 1),
        (24, "max", "0", 8, 8),
    ],
)
def test_job_count(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    available_gb: float,
    limit: str | None,
    used: str,
    processors: int,
    expected: int,
) -> None:
    monkeypatch.setattr(jobs, "processors", lambda: processors)
    root = machine(tmp_path, int(available_gb * 1e9 / 1024), limit, used)
    assert jobs.job_count(root=root) == expected


def test_jobs_of_user_are_taken(tmp_path: Path) -> None:
    assert jobs.job_count(7, root=tmp_path) == 7


def test_jobs_without_memory_figure_are_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "processors", lambda: 3)
    assert jobs.available_bytes(tmp_path) is None
    assert jobs.job_count(root=tmp_path) == 3

"""The number of jobs is limited by processors and by memory, in a container, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckpm.base import jobs
from ckpm_emulator import options


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
    monkeypatch.setattr(jobs, "processors", lambda root: processors)
    root = machine(tmp_path, int(available_gb * 1e9 / 1024), limit, used)
    assert jobs.job_count(root=root) == expected


def test_jobs_of_user_are_taken(tmp_path: Path) -> None:
    assert jobs.job_count(7, root=tmp_path) == 7


def test_jobs_without_memory_figure_are_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "processors", lambda root: 3)
    assert jobs.available_bytes(tmp_path) is None
    assert jobs.job_count(root=tmp_path) == 3


def write_group(root: Path, folder: str, **files: str) -> None:
    """A control group of this process: its folder below /sys/fs/cgroup, and files, with _ for the first dot."""
    (root / "sys/fs/cgroup" / folder).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / "sys/fs/cgroup" / folder / name.replace("_", ".", 1)).write_text(text)


def test_page_cache_of_container_is_available(tmp_path: Path) -> None:
    """A build reads and writes gigabytes of files, which the kernel keeps until something needs the memory."""
    root = machine(tmp_path, 24_000_000, "6000000000", "5900000000")
    write_group(root, ".", memory_stat="anon 900000000\ninactive_file 4000000000\nactive_file 999\nshmem 5\n")
    assert jobs.available_bytes(root) == 4_100_000_999
    assert jobs.job_count(root=root) == min(2, jobs.processors())


@pytest.mark.parametrize(
    ("line", "top", "limit", "used", "prefix"),
    [
        ("0::/slice/job/step", "", "memory_max", "memory_current", ""),
        ("0::/slice/job/step", "", "memory_high", "memory_current", ""),
        ("4:cpu,memory:/slice/job", "memory/", "memory_limit_in_bytes", "memory_usage_in_bytes", "total_"),
    ],
)
def test_limits_of_groups_above_count(tmp_path: Path, line: str, top: str, limit: str, used: str, prefix: str) -> None:
    root = machine(tmp_path, 24_000_000)
    (root / "proc/self").mkdir()
    (root / "proc/self/cgroup").write_text(f"{line}\n")
    write_group(root, f"{top}slice/job", **{limit: "9000000000", used: "1000"})
    write_group(root, f"{top}slice", **{limit: "9000000000", used: "4000000000"})
    write_group(root, f"{top}slice", memory_stat=f"inactive_file 1\n{prefix}inactive_file 500000000\n")
    assert jobs.available_bytes(root) == 5_500_000_000


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu_max": "max 100000"}, 8),
        ({"cpu_max": "250000 100000"}, 3),
        ({"cpu_max": "1000 100000"}, 1),
        ({"cpu_cfs_quota_us": "-1", "cpu_cfs_period_us": "100000"}, 8),
        ({"cpu_cfs_quota_us": "200000", "cpu_cfs_period_us": "100000"}, 2),
    ],
)
def test_processor_time_of_container_bounds_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], expected: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    write_group(tmp_path, "slice" if "cpu_max" in files else "cpu/slice", **files)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/slice/job\n3:cpu,cpuacct:/slice/job\n")
    assert jobs.processors(tmp_path) == expected
    assert options.processors(tmp_path) == expected

"""The number of compilers that may run at once, bounded by processors and memory."""

from __future__ import annotations

import os
from pathlib import Path

# Peak of a merged unit of eight kernels, measured with the embedded toolchain (README's requirements contain it, too).
UNIT_BYTES = 1_400_000_000


def processors() -> int:
    """The number of processors that this process may use (affinity), maybe fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_bytes(root: Path = Path("/")) -> int | None:
    """Memory available without swapping: the smaller of MemAvailable and the cgroup's rest; None if unknown."""
    limits = []
    meminfo = root / "proc/meminfo"
    if meminfo.is_file():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                limits.append(int(line.split()[1]) * 1024)
    for limit, used in (
        ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            most, now = (root / limit).read_text().strip(), (root / used).read_text().strip()
        except OSError:
            continue
        if most.isdigit() and now.isdigit():
            limits.append(int(most) - int(now))
    return min(limits) if limits else None


def job_count(jobs: int | None = None, *, root: Path = Path("/")) -> int:
    """Return ``jobs``, by default as many as processors and memory allow, at least one."""
    if jobs is not None:
        return jobs
    memory = available_bytes(root)
    by_memory = processors() if memory is None else memory // UNIT_BYTES
    return max(1, min(processors(), by_memory))

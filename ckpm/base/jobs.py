"""The number of compilers that may run at once, bounded by processors and memory, also by those of a container."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

# Peak of a merged unit of eight kernels, measured with the embedded toolchain (README's requirements contain it, too).
UNIT_BYTES = 1_400_000_000
# Limit and use in a control group's folder, of versions 2 and 1 (the kernel's documentation: cgroup-v2, cgroup-v1).
_MEMORY = (
    ("memory.max", "memory.current"),
    ("memory.high", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)
_CACHES = ("inactive_file", "active_file", "slab_reclaimable")  # they count as used, and are given up when it is short


def processors(root: Path = Path("/")) -> int:
    """The number of processors that this process may use: by affinity, and by the processor time of its groups."""
    most = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for group in _groups(root, "cpu"):
        share = _read(group / "cpu.max") or _read(group / "cpu.cfs_quota_us") + _read(group / "cpu.cfs_period_us")
        if len(share) == 2 and share[0].isdigit():  # else max, or -1
            most = min(most, max(1, -(-int(share[0]) // int(share[1]))))
    return most


def available_bytes(root: Path = Path("/")) -> int | None:
    """Memory available without swapping: the smallest of MemAvailable and the rests of the groups; None if unknown."""
    memory = _table(root / "proc/meminfo")
    rests = [memory["MemAvailable:"] << 10] if "MemAvailable:" in memory else []
    for group in _groups(root, "memory"):
        for names in _MEMORY:
            limit, used = (_read(group / name) for name in names)
            if limit and used and limit[0].isdigit():
                caches = _table(group / "memory.stat")
                kept = sum(caches.get(f"total_{name}", caches.get(name, 0)) for name in _CACHES)
                rests.append(max(0, int(limit[0]) - int(used[0]) + kept))
    return min(rests) if rests else None


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of this process's control group and of the groups above it, whose limits count, too."""
    top = root / "sys/fs/cgroup"
    lines = [line.split(":", 2) for line in _read(root / "proc/self/cgroup") if line.count(":") > 1]
    paths = {PurePosixPath(path) for _, names, path in lines if names == "" or controller in names.split(",")}
    for path in {PurePosixPath("/")}.union(paths, *(path.parents for path in paths)):
        yield from (top / path.relative_to("/"), top / controller / path.relative_to("/"))


def _read(file: Path) -> list[str]:
    """The words of a file; [] if it is not there: a container may see its group's folder without those above."""
    try:
        return file.read_text().split()
    except OSError:
        return []


def _table(file: Path) -> dict[str, int]:
    """The numbers of a file with a name and a number in each line."""
    return {name: int(number) for name, number in itertools.pairwise(_read(file)) if number.isdigit()}


def job_count(jobs: int | None = None, *, root: Path = Path("/")) -> int:
    """Return ``jobs``, by default as many as processors and memory allow, at least one."""
    if jobs is not None:
        return jobs
    memory = available_bytes(root)
    most = processors(root)
    return max(1, most if memory is None else min(most, memory // UNIT_BYTES))

"""``python -m kernels doctor``: what a build would find on this machine, and what to do about what is missing."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from kernels import jobs, settings
from kernels.console import console
from kernels.toolchains import detect, rocm
from kernels.upstream import checkout, is_unpacked
from matrix.dialects import upstreams
from matrix.errors import CkPrefillError

# Free space that a first build needs: upstream trees, the compiler's cache, objects of the smoke tier.
_NEEDED_BYTES = 3_000_000_000


@dataclass(frozen=True, slots=True)
class Finding:
    """One row. ``state`` is ok, missing (something will be fetched or is optional) or broken (a build would fail)."""

    subject: str
    state: str
    found: str
    advice: str = ""


def examine(cache: Path, ck_root: Path | None) -> list[Finding]:
    """All findings; nothing is downloaded or built."""
    return [
        _python(),
        _toolchain("embedded", cache),
        _rocm(cache),
        *_upstreams(cache, ck_root),
        _device(),
        _cache(cache),
        _resources(),
    ]


def _python() -> Finding:
    version = platform.python_version()
    return Finding("python", "ok", version)


def _toolchain(name: str, cache: Path) -> Finding:
    try:
        return Finding(f"toolchain {name}", "ok", detect(name, cache=cache).identity)
    except CkPrefillError as error:
        return Finding(f"toolchain {name}", "broken", "not usable", str(error))


def _rocm(cache: Path) -> Finding:
    if not rocm.locate():
        return Finding("toolchain rocm", "missing", "no ROCm", "optional: install ROCm, or set ROCM_PATH")
    return _toolchain("rocm", cache)


def _upstreams(cache: Path, ck_root: Path | None) -> list[Finding]:
    found = []
    for name, package in upstreams().items():
        what = f"{package.package} {package.version}, {package.summary}"
        if is_unpacked(package, cache):
            found.append(Finding(f"upstream {name}", "ok", what))
        else:
            found.append(Finding(f"upstream {name}", "missing", what, "is downloaded by the first build that needs it"))
    if ck_root is None:
        advice = "optional: set CK_ROOT to a CK repository or rocm-libraries"
        return [*found, Finding("upstream checkout", "missing", "CK_ROOT is not set", advice)]
    try:
        tree = checkout(ck_root)
    except CkPrefillError as error:
        return [*found, Finding("upstream checkout", "broken", str(ck_root), str(error))]
    return [*found, Finding("upstream checkout", "ok", f"{tree.root}, dialect {tree.dialect}")]


def _device() -> Finding:
    if not Path("/dev/kfd").exists():
        return Finding("device", "missing", "no /dev/kfd", "building needs none; an MI300 or MI350 runs what was built")
    if not os.access("/dev/kfd", os.R_OK | os.W_OK):
        return Finding("device", "broken", "/dev/kfd is not accessible", "add this user to the groups render and video")
    return Finding("device", "ok", "/dev/kfd")


def _cache(cache: Path) -> Finding:
    place = cache
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    text = f"{cache}, {free / 1e9:.0f} GB free"
    if not os.access(place, os.W_OK):
        return Finding("cache", "broken", text, "not writable: set CKPM_CACHE to another folder")
    if free < _NEEDED_BYTES:
        return Finding("cache", "broken", text, f"needs {_NEEDED_BYTES / 1e9:.0f} GB: set CKPM_CACHE to another disk")
    return Finding("cache", "ok", text)


def _resources() -> Finding:
    memory = jobs.available_bytes()
    text = f"{jobs.processors()} processors" + (f", {memory / 1e9:.1f} GB of memory" if memory else "")
    if memory is not None and memory < jobs.UNIT_BYTES:
        advice = f"a merged unit takes {jobs.UNIT_BYTES / 1e9:.1f} GB: build with --unit-size 1"
        return Finding("jobs", "broken", text, advice)
    return Finding("jobs", "ok", f"{text}: {jobs.job_count()} compilers at once")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ck-root", type=Path, default=None, help="a CK checkout; default: CK_ROOT")


def run(args: argparse.Namespace) -> int:
    """Print the findings; 1 if something would make a build fail."""
    findings = examine(settings.cache_folder(), args.ck_root or settings.ck_root())
    table = Table(box=None, pad_edge=False)
    for column in ("", "what", "found", "what to do"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        table.add_row(finding.state, finding.subject, finding.found, finding.advice)
    console().print(table)
    return 1 if any(finding.state == "broken" for finding in findings) else 0

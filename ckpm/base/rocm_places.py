"""GPUs of this machine, and paths of ROCm: AMD's installation, a distribution's packages, or Python packages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# CKPM_SYSTEM: a folder with dev/kfd and sys/ of a GPU that is not there, for rehearsals
SYSTEM = Path(os.environ.get("CKPM_SYSTEM") or "/")
KFD = SYSTEM / "dev/kfd"
NODES = SYSTEM / "sys/class/kfd/kfd/topology/nodes"
# Variables of HIP that choose the GPUs of a process by number; the second counts if the first is unset.
HIP_VISIBLE = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
VISIBLE = (*HIP_VISIBLE, "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")  # all that hide GPUs (ROCm: GPU isolation)
_WHEELS = ("_rocm_sdk_devel", "_rocm_sdk_core")  # folders of the packages rocm-sdk-devel and rocm-sdk-core
_LIBRARY_FOLDERS = ("usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/local/lib", "usr/lib")
_RUNTIMES = ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so")
_CACHE_LINE = re.compile(r"^\s*(\S+) \(libc6,x86-64\b[^)]*\) => (\S+)$", re.MULTILINE)


def gpu_archs(nodes: Path | None = None) -> tuple[str, ...]:
    """Return the archs of the driver's GPUs. Its gfx_target_version 90402 is gfx942, 90010 is gfx90a."""
    archs = []
    for properties in sorted((nodes or NODES).glob("*/properties")):
        try:
            rows = dict(line.split() for line in properties.read_text().splitlines())
        except (OSError, ValueError):  # a node that this user may not read
            continue
        version = int(rows.get("gfx_target_version", 0))
        if version and int(rows.get("simd_count", 1)):
            archs.append(f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}")
    return tuple(archs)


def roots() -> list[Path]:
    """Return the folders with bin/, lib/ and include/ of ROCm: ROCM_PATH, HIP_PATH, /opt/rocm, Python packages."""
    named = [Path(root) for root in (os.environ.get("ROCM_PATH"), os.environ.get("HIP_PATH")) if root]
    wheels = [Path(folder) / name for name in _WHEELS for folder in sys.path if folder]
    return [*named, SYSTEM / "opt/rocm", *(wheel for wheel in wheels if wheel.is_dir())]


def runtime() -> str | None:
    """Return the path of ROCm's HIP runtime, None if it is missing.

    The search goes through the roots, then, like the loader, LD_LIBRARY_PATH, the loader's cache and its folders.
    """
    return next((str(file) for file in _runtimes() if file.is_file()), None)


def _runtimes() -> Iterator[Path]:
    for root in roots():
        yield from (root / "lib" / name for name in _RUNTIMES)
    for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        yield from (Path(folder) / name for name in _RUNTIMES if folder)
    cached = _loader_cache()
    yield from (Path(cached[name]) for name in _RUNTIMES if name in cached)
    yield from (SYSTEM / folder / name for folder in _LIBRARY_FOLDERS for name in _RUNTIMES)


def _loader_cache() -> dict[str, str]:
    """Return path by name of the 64-bit libraries in the loader's cache; the first of a name counts."""
    program = shutil.which("ldconfig") or next(
        (str(file) for file in (SYSTEM / "sbin/ldconfig", SYSTEM / "usr/sbin/ldconfig") if file.is_file()), None
    )
    if program is None:
        return {}
    try:
        run = subprocess.run([program, "-p"], capture_output=True, text=True, errors="replace", timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    paths: dict[str, str] = {}
    for name, path in _CACHE_LINE.findall(run.stdout):
        paths.setdefault(name, path)
    return paths


def clang() -> tuple[str, tuple[str, ...]] | None:
    """Return a distribution's newest clang that can compile HIP, and its options for headers and device libraries.

    None unless all three exist.
    """
    if not (SYSTEM / "usr/include/hip/hip_runtime.h").is_file():
        return None
    folder = SYSTEM / "usr/bin"
    names = (re.fullmatch(r"clang\+\+-(\d+)", file.name) for file in folder.glob("clang++-*"))
    versions = [int(name[1]) for name in names if name]
    for version in sorted(versions, reverse=True):
        library_folders = (
            *(f"usr/lib/llvm-{version}/lib/clang/{version}", f"usr/lib/clang/{version}"),
            *_LIBRARY_FOLDERS,
        )
        for library_folder in library_folders:
            bitcode = SYSTEM / library_folder / "amdgcn/bitcode"
            if (bitcode / "ockl.bc").is_file():
                return str(folder / f"clang++-{version}"), (
                    f"--rocm-path={SYSTEM / 'usr'}",
                    f"--rocm-device-lib-path={bitcode}",
                )
    return None

"""The ROCm toolchain: hipcc, or amdclang++ without hipcc, of an installed ROCm; else a distribution's clang.

hipcc comes first because AMD tests CK with it. Environment variables that add flags to it are cleared, so that two
machines with one ROCm version build alike.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from ckpm.base import rocm_places
from ckpm.base.errors import SetupError
from ckpm.kernels.code.toolchains.base import KERNEL_FLAGS, Toolchain, version_output

_COMPILERS = ("hipcc", "amdclang++")

_ENVIRONMENT: Mapping[str, str] = {
    "HIP_PLATFORM": "amd",
    "HIPCC_COMPILE_FLAGS_APPEND": "",
    "HIPCC_LINK_FLAGS_APPEND": "",
    "CPATH": "",
    "C_INCLUDE_PATH": "",
    "CPLUS_INCLUDE_PATH": "",
}

# hipcc adds these to every optimised compile; amdclang++ needs them on its command line.
_INLINE_ALL = ("-mllvm", "-amdgpu-early-inline-all=true", "-mllvm", "-amdgpu-function-calls=false")


def locate() -> str | None:
    """Return the path of the ROCm compiler, None if it is missing.

    The search covers the roots of ckpm/base/rocm_places.py, PATH, and a distribution's clangs.
    """
    return _compiler()[0]


def _compiler() -> tuple[str | None, tuple[str, ...]]:
    """Return the compiler and its options that contain paths."""
    for folder in (root / "bin" for root in rocm_places.roots()):
        for name in _COMPILERS:
            if os.access(folder / name, os.X_OK):
                return str(folder / name), ()
    if path := next((path for name in _COMPILERS if (path := shutil.which(name))), None):
        return path, ()
    return rocm_places.clang() or (None, ())


def find() -> Toolchain:
    """Return the ROCm toolchain."""
    compiler, search = _compiler()
    if compiler is None:
        raise SetupError(
            f"neither {' nor '.join(_COMPILERS)} found in ROCM_PATH, HIP_PATH, /opt/rocm, Python's packages or PATH, "
            "nor a clang with HIP's headers and device libraries in /usr: "
            "install ROCm or set ROCM_PATH, or leave out --rocm and CKPM_ROCM=1: the pinned compiler needs no ROCm",
            kind="toolchain",
        )
    is_hipcc = Path(compiler).name == "hipcc"
    return Toolchain(
        name="rocm",
        identity=f"rocm {Path(compiler).name} {_versions(compiler)}",
        compiler=(compiler,),
        search=search,
        # Compressed bundles would hide the code objects from the resource tables.
        flags=("-x", "hip", "--no-offload-compress", *KERNEL_FLAGS, *(() if is_hipcc else _INLINE_ALL)),
        linker=(compiler,),
        link_flags=("-shared", "-no-hip-rt", "-Wl,--build-id=none"),
        environment=dict(_ENVIRONMENT),
    )


def _versions(compiler: str) -> str:
    """``HIP 7.1.x clang 20.0.0git``, or the clang part alone, out of the compiler's --version text."""
    run = version_output([compiler, "--version"], _ENVIRONMENT, "repair the ROCm installation")
    clang = re.search(r"clang version (\S+)", run.stdout)
    if run.returncode != 0 or clang is None:
        output = (run.stderr or run.stdout).strip()
        raise SetupError(
            f"'{compiler} --version' ended with {run.returncode} and said '{output}': "
            "repair the ROCm installation, or leave out --rocm and CKPM_ROCM=1: the pinned compiler needs no ROCm",
            kind="toolchain",
        )
    hip = re.search(r"HIP version: (\S+)", run.stdout)
    release = re.search(r"\broc-[\w.]+", run.stdout)
    versions = [f"HIP {hip[1]}"] if hip else []
    versions.append(f"clang {clang[1]}")
    versions += [release[0]] if release else []
    return " ".join(versions)

"""The embedded toolchain: clang of the ``ziglang`` wheel, its libc++ and glibc headers, and our HIP headers.

No header or library of the machine takes part, so every machine makes the same bytes. clang's HIP driver calls two
programs that the wheel lacks, ``lld`` and ``clang-offload-bundler``. Two launchers in the cache folder replace them;
clang finds them with ``-B``.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ckpm.base.errors import SetupError
from ckpm.base.files import name_write_errors
from ckpm.base.paths import data
from ckpm.base.trust import demand_private, demand_trusted
from ckpm.base.zig_cache import own_folder
from ckpm.kernels.code.toolchains.base import KERNEL_FLAGS, Toolchain, version_output

# Objects run on machines with at least glibc 2.28 (RHEL 8, Ubuntu 18.10); zig's headers need the minor version.
GLIBC_MINOR = 28

# zig's configuration of the libc++ that it builds at link time. Objects with other values would have another ABI.
# Seen with: zig c++ -target x86_64-linux-gnu.2.28 -v -c FILE
_LIBCXX_CONFIG = (
    f"-D__GLIBC_MINOR__={GLIBC_MINOR}",
    "-D_LIBCPP_ABI_VERSION=1",
    "-D_LIBCPP_ABI_NAMESPACE=__1",
    "-D_LIBCPP_HAS_THREADS=1",
    "-D_LIBCPP_HAS_MONOTONIC_CLOCK",
    "-D_LIBCPP_HAS_TERMINAL",
    "-D_LIBCPP_HAS_MUSL_LIBC=0",
    "-D_LIBCXXABI_DISABLE_VISIBILITY_ANNOTATIONS",
    "-D_LIBCPP_DISABLE_VISIBILITY_ANNOTATIONS",
    "-D_LIBCPP_HAS_VENDOR_AVAILABILITY_ANNOTATIONS=0",
    "-D_LIBCPP_HAS_FILESYSTEM=1",
    "-D_LIBCPP_HAS_RANDOM_DEVICE",
    "-D_LIBCPP_HAS_LOCALIZATION",
    "-D_LIBCPP_HAS_UNICODE",
    "-D_LIBCPP_HAS_WIDE_CHARACTERS",
    "-D_LIBCPP_HAS_NO_STD_MODULES",
    "-D_LIBCPP_HAS_TIME_ZONE_DATABASE",
    "-D_LIBCPP_PSTL_BACKEND_SERIAL",
    "-D_LIBCPP_HARDENING_MODE=_LIBCPP_HARDENING_MODE_NONE",
    "-D_LIBCPP_ASSERTION_SEMANTIC_DEFAULT=_LIBCPP_ASSERTION_SEMANTIC_IGNORE",
)

# In this order: libc++ before C headers, clang's own headers before glibc's.
_SYSTEM_FOLDERS = (
    "libcxx/include",
    "libcxxabi/include",
    "include",
    "libc/include/x86-linux-gnu",
    "libc/include/generic-glibc",
    "libc/include/x86-linux-any",
    "libc/include/any-linux-any",
)

_HEADERS = data("kernels", "hip")
_BUNDLER = Path(__file__).resolve().parent / "offload_bundler.py"

# clang calls `lld -flavor gnu ...`; zig's linker takes no -flavor.
_LLD_TEXT = '#!/bin/sh\n[ "$1" = "-flavor" ] && shift 2\nexec {zig} ld.lld "$@"\n'
_BUNDLER_TEXT = '#!/bin/sh\nexec {python} -I -S {bundler} "$@"\n'


def find(*, cache: Path) -> Toolchain:
    """Return the embedded toolchain; its launchers, and later zig's libc++, are below ``cache``."""
    spec = importlib.util.find_spec("ziglang")
    if spec is None or not spec.submodule_search_locations:
        raise SetupError("the Python package 'ziglang' is not installed: pip install ziglang==0.17.0", kind="toolchain")
    package = Path(spec.submodule_search_locations[0])
    version = _package_version(package)
    zig = str(package / "zig")
    lib = package / "lib"
    demand_private(cache.absolute())
    environment = _environment(own_folder(cache.absolute() / "zig", lib))
    clang = _clang_version(zig, environment)
    helpers = _write_helpers(zig, cache.absolute())
    return Toolchain(
        name="embedded",
        identity=f"embedded ziglang {version} clang {clang} {_own_text_hash()}",
        compiler=(zig, "clang"),
        search=(
            f"-B{helpers}",
            *("-resource-dir", str(lib)),
            *("-isystem", str(_HEADERS)),
            *(word for folder in _SYSTEM_FOLDERS for word in ("-isystem", str(lib / folder))),
        ),
        flags=(
            *("-x", "hip"),
            "--target=x86_64-unknown-linux-gnu",
            *("-nogpuinc", "-nogpulib", "-nostdinc", "-nostdinc++"),
            *_LIBCXX_CONFIG,
            *KERNEL_FLAGS,
        ),
        linker=(zig, "c++"),
        link_flags=(
            *("-target", f"x86_64-linux-gnu.2.{GLIBC_MINOR}"),
            *("-shared", "-O2", "-Wl,--build-id=none", "-Wl,--strip-debug"),
        ),
        environment=environment,
    )


def _environment(folder: Path) -> dict[str, str]:
    """Return zig's caches without the caller's folders: clang searches the folders of CPATH even with -nostdinc."""
    return {
        "ZIG_GLOBAL_CACHE_DIR": str(folder),
        "ZIG_LOCAL_CACHE_DIR": str(folder),
        "CPATH": "",
        "C_INCLUDE_PATH": "",
        "CPLUS_INCLUDE_PATH": "",
    }


def _package_version(package: Path) -> str:
    try:
        return importlib.metadata.version("ziglang")
    except importlib.metadata.PackageNotFoundError as error:
        raise SetupError(
            f"{package}: the Python package 'ziglang' is there without its metadata: reinstall it", kind="toolchain"
        ) from error


def _clang_version(zig: str, environment: Mapping[str, str]) -> str:
    """Return the version of the wheel's clang, such as ``22.1.8``."""
    run = version_output([zig, "clang", "--version"], environment, "reinstall the package 'ziglang'")
    first, _, _ = run.stdout.partition("\n")
    if run.returncode != 0 or "clang version " not in first:
        raise SetupError(
            f"'{zig} clang --version' ended with {run.returncode} and said '{(run.stderr or first).strip()}': "
            "reinstall the Python package 'ziglang'",
            kind="toolchain",
        )
    return first.partition("clang version ")[2].split()[0]


def _own_text_hash() -> str:
    """Return 16 hex digits of the hash of our headers, the bundler and the launchers, without machine paths."""
    digest = hashlib.sha256()
    for path in [*(path for path in sorted(_HEADERS.rglob("*")) if path.is_file()), _BUNDLER]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    digest.update((_LLD_TEXT + _BUNDLER_TEXT).encode())
    return digest.hexdigest()[:16]


def _is_whole(launcher: Path, text: str, cache: Path) -> bool:
    """True if a launcher has our text. A launcher that other users could have changed is refused."""
    if not launcher.is_file():
        return False
    demand_trusted(launcher, cache)
    return launcher.read_text(errors="replace") == text and os.access(launcher, os.X_OK)


def _write_helpers(zig: str, cache: Path) -> Path:
    """Return the folder for ``-B``, made if missing by a rename, because several processes may make it at once."""
    texts = {
        "lld": _LLD_TEXT.format(zig=shlex.quote(zig)),
        "clang-offload-bundler": _BUNDLER_TEXT.format(
            python=shlex.quote(sys.executable), bundler=shlex.quote(str(_BUNDLER))
        ),
    }
    key = hashlib.sha256("\0".join(texts.values()).encode()).hexdigest()[:16]
    folder = cache / "launchers" / key
    if folder.is_dir():
        if all(_is_whole(folder / name, text, cache) for name, text in texts.items()):
            return folder
        shutil.rmtree(folder)
    with name_write_errors(folder.parent, "set CKPM_CACHE to another folder"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{key}.", dir=folder.parent) as beside:
            draft = Path(beside) / key
            draft.mkdir()
            for name, text in texts.items():
                (draft / name).write_text(text)
                (draft / name).chmod(0o755)
            try:
                draft.rename(folder)
            except OSError:
                if not folder.is_dir():  # else another process was first; its content is the same
                    raise
    return folder

"""ROCm's library for devices (ockl.bc: printf, assert and malloc of kernels), which the embedded toolchain lacks.

It is 250 KB of LLVM bitcode in Triton's package of 290 MB, of which nothing else is kept.
"""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path

from kernels.base.settings import cache_folder
from kernels.upstream.package_index import download
from matrix.base.files import sha256_of, write_atomically

# As requirements-triton.txt pins it; what the library is does not depend on the Python that a file is for.
VERSION = "3.9.0"
FILE = f"triton-{VERSION}-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl"
SHA256 = "1622118a038b0c6e16fa4a0305da62c8b3c15904ee1cc4d4e65846a25969e41e"
MEMBER = "triton/backends/amd/lib/ockl.bc"
BITCODE_SHA256 = "6875e743c99d1123627ef94937b700d25ea0fe402773257c720250a1fc31c06d"


def flags() -> tuple[str, ...]:
    """What clang needs to link it. Raises DownloadError, AssertionError."""
    file = bitcode()
    return ("--offloadlib", f"--hip-device-lib-path={file.parent}", f"--hip-device-lib={file.name}")


def bitcode() -> Path:
    """The library in the cache, downloaded if need be. Raises DownloadError; AssertionError: not what is pinned."""
    kept = cache_folder() / "programs" / f"device-library-{BITCODE_SHA256[:16]}" / "ockl.bc"
    if not kept.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            wheel = Path(folder) / FILE
            download("triton", VERSION, FILE, wheel)
            assert sha256_of(wheel) == SHA256, f"{FILE} is not the file that was pinned"
            with zipfile.ZipFile(wheel) as archive:
                write_atomically(kept, archive.read(MEMBER))
    assert sha256_of(kept) == BITCODE_SHA256, f"{kept} is damaged: remove it"
    return kept

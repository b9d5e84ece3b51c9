"""ROCm's device libraries for the embedded toolchain: printf, assert, malloc (ockl.bc) and mathematics (ocml.bc).

They are 460 KB of LLVM bitcode, taken from Triton's package of 290 MB.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from hashlib import file_digest, sha256
from pathlib import Path

from ckpm_emulator.cache import cache_folder, draft_for

# The version of requirements-triton.txt. The libraries are the same in the files for all versions of Python.
VERSION = "3.9.0"
SHA256 = "1622118a038b0c6e16fa4a0305da62c8b3c15904ee1cc4d4e65846a25969e41e"
MEMBERS = "triton/backends/amd/lib"
# The sha256 of each library.
LIBRARIES = {
    "ockl.bc": "6875e743c99d1123627ef94937b700d25ea0fe402773257c720250a1fc31c06d",
    "ocml.bc": "dbc064b5f4f61221ab552ec6d8f0dab41153fe9bd86fdcc63a8a97c9475a21c5",
}


def flags() -> tuple[str, ...]:
    """The options of clang that link the libraries."""
    names = (f"--hip-device-lib={name}" for name in LIBRARIES)
    return ("--offloadlib", f"--hip-device-lib-path={folder()}", *names)


def folder() -> Path:
    """The folder of the libraries in the cache. Downloads them if needed."""
    key = sha256(repr(LIBRARIES).encode()).hexdigest()[:16]
    kept = cache_folder().parent / "programs" / f"device-library-{key}"
    if not all((kept / name).is_file() for name in LIBRARIES):
        with tempfile.TemporaryDirectory() as drafts:
            platform = ("--only-binary=:all:", "--python-version=3.11", "--platform=manylinux_2_28_x86_64")
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", drafts, *platform]
            subprocess.run([*pip, f"triton=={VERSION}"], check=True)
            (wheel,) = Path(drafts).iterdir()
            assert _sha256_of(wheel) == SHA256, f"{wheel.name} is not the file that was pinned"
            with zipfile.ZipFile(wheel) as archive:
                for name in LIBRARIES:
                    with draft_for(kept / name, kept) as draft:
                        draft.write_bytes(archive.read(f"{MEMBERS}/{name}"))
    for name, expected in LIBRARIES.items():
        assert _sha256_of(kept / name) == expected, f"{kept / name} is damaged: remove it"
    return kept


def _sha256_of(file: Path) -> str:
    with file.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()

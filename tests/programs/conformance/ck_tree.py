"""Composable Kernel's examples and tests from the packaged tree, with the headers of kernel builds."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.files import hold_lock
from ckpm.base.settings import cache_folder
from ckpm.kernels.upstream import trees
from ckpm.matrix.dialects import check_upstream
from programs.program_builder import cache_of, compile_object, header_folders, identity, link

ARCH = "gfx950"
_UPSTREAM = "aiter"
# From CK's CMake files: OCP's fp8 for gfx950, for host code too.
_DEFINITIONS = ("-DCK_TILE_USE_OCP_FP8=1", "-DCK_TILE_FMHA_FWD_FAST_EXP2=1")
_FIRST = "integer_abs.h"  # of the headers that the embedded toolchain lacks
_PARTS = ("example/", "test/", "library/include/", "library/src/utility/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """``root`` contains CK's example and test folders; ``includes`` are the folders of its headers."""

    root: Path
    includes: tuple[Path, ...]
    identity: str


def sources() -> Sources:
    """The files of the pinned package, downloaded and unpacked if the cache lacks them."""
    tree = trees.locate(_UPSTREAM, cache=cache_folder())
    package = check_upstream(_UPSTREAM)
    root = cache_folder() / "programs" / f"ck-{package.version}-{package.sha256[:16]}"
    unpack_once(root, f"{package.tree}/", _PARTS)
    return Sources(root=root, includes=(*tree.includes, root / "library/include"), identity=tree.identity)


def build_program(
    name: str, folder: str, files: Sequence[str], flags: Sequence[str], objects: Sequence[Path] = ()
) -> Path:
    """Build a program from files below a folder of the tree and further objects."""
    tree, chosen = sources(), (*_DEFINITIONS, *flags)
    cached = cache_of(name, *identity(), tree.identity, ARCH, *chosen, *files, *map(str, objects))
    program = cached / name
    if program.is_file():
        return program
    paths = [tree.root / folder / file for file in files]
    headers = header_folders()
    includes = [*dict.fromkeys(path.parent for path in paths), *headers, *tree.includes]
    extra = (*chosen, *(word for folder in headers for word in ("-include", str(folder / _FIRST))))
    units = [
        compile_object(path, cached / f"{path.stem}.o", archs=[ARCH], includes=includes, extra=extra) for path in paths
    ]
    return link([*units, *objects], program)


def unpack_once(root: Path, prefix: str, parts: tuple[str, ...]) -> Path:
    """The files of the pinned package below ``prefix`` that begin with one of ``parts``, unpacked once to ``root``."""
    root.parent.mkdir(parents=True, exist_ok=True)
    with hold_lock(Path(f"{root}.lock"), "Delete it if no other run is there."):
        if not root.is_dir():
            _unpack(root, prefix, parts)
    return root


def _unpack(root: Path, prefix: str, parts: tuple[str, ...]) -> None:
    package = check_upstream(_UPSTREAM)
    with tempfile.TemporaryDirectory(dir=root.parent) as folder:
        archive, draft = Path(folder) / package.file, Path(folder) / "tree"
        trees.fetch_archive(package, archive)
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                inner = name.removeprefix(prefix)
                if name.startswith(prefix) and inner.startswith(parts) and not name.endswith("/"):
                    output = draft / inner
                    output.parent.mkdir(parents=True, exist_ok=True)
                    output.write_bytes(wheel.read(name))
        draft.rename(root)

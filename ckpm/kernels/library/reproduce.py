"""``ckpm build --reproduce``: build a selection twice, in two folders, with nothing shared; compare every byte.

Neither build takes objects from a cache, and each has a compiler's cache of its own, so that the toolchain's own
libraries (zig's libc++) are compared, too. No artifact may contain the name of a folder of this machine.

With ``--built DIR`` the library in ``DIR/build`` is the first of the two, wherever its objects came from: a release
builds its libraries once more.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ckpm.base import settings
from ckpm.base.display import show
from ckpm.base.errors import CheckFailedError, LibraryError
from ckpm.base.files import sha256_of
from ckpm.base.paths import PROJECT
from ckpm.kernels.code.toolchains import Toolchain, detect
from ckpm.kernels.library import building
from ckpm.kernels.library.manifest import MANIFEST, Manifest
from ckpm.kernels.library.request import LIBRARY, BuildRequest

# Files about the machine or the run, which are not artifacts. Nor are hidden files (a build's locks, signatures,
# headers and outputs) and files that compilers left in the folder for temporary files.
_OWN_TO_A_RUN = ("plan.json", "compile_commands.json")


def artifacts(folder: Path) -> dict[str, Path]:
    """Return every artifact below an output folder, by relative path."""
    files = (
        file for file in sorted(folder.rglob("*")) if file.is_file() and folder / building.TEMPORARY not in file.parents
    )
    return {
        str(file.relative_to(folder)): file
        for file in files
        if file.name not in _OWN_TO_A_RUN and not file.name.startswith(".")
    }


def differences(first: dict[str, str], second: dict[str, str]) -> list[str]:
    """Return a line for each artifact that is missing on one side or differs; both are sha256 by name."""
    lines = []
    for name in sorted(first.keys() | second.keys()):
        if name not in first or name not in second:
            lines.append(f"{name}: only in the {'first' if name in first else 'second'} build")
        elif first[name] != second[name]:
            lines.append(f"{name}: {first[name][:16]} in the first build, {second[name][:16]} in the second")
    return lines


def leaks(files: dict[str, Path], folders: Iterable[Path]) -> list[str]:
    """Return a line for each artifact that contains the name of a folder of this machine."""
    names = sorted({str(folder) for folder in folders} - {"/"})
    patterns = {name: re.compile(re.escape(name.encode()) + rb"(?![\w.-])") for name in names}
    complaints = []
    for artifact, file in files.items():
        data = file.read_bytes()
        complaints += [f"{artifact}: holds {name}" for name, pattern in patterns.items() if pattern.search(data)]
    return complaints


def build_twice(request: BuildRequest, toolchain: Callable[[Path], Toolchain], jobs: int) -> tuple[int, list[str]]:
    """Build in two folders of different name and depth; return (number of artifacts, differences and leaks).

    ``toolchain`` returns a toolchain with its cache in a given folder.
    """
    with tempfile.TemporaryDirectory(prefix="ckpm-") as name:
        base = Path(name)
        works = (base / "first", base / "second/with a longer path")
        builds = [_build(request, work, toolchain(base / f"cache of {work.name}"), jobs) for work in works]
        leaked = [line for files in builds for line in leaks(files, _folders(request, base))]
        return len(builds[0]), [*differences(*map(_sums, builds)), *dict.fromkeys(leaked)]


def build_again(
    request: BuildRequest, built: Path, toolchain: Callable[[Path], Toolchain], jobs: int
) -> tuple[int, list[str]]:
    """Build again and compare with the library and manifest of ``built``, an output folder; return as build_twice.

    Objects and sources, which may be deleted, are compared by the manifest's sha256.
    """
    manifest = Manifest.read(built / MANIFEST)
    if not (built / LIBRARY).is_file():
        raise LibraryError(
            f"{built / LIBRARY} is missing, and its manifest is there. {manifest.remedy}", kind="mismatch"
        )
    kept = {name: built / name for name in (LIBRARY, MANIFEST)}
    first = {**manifest.artifacts, **_sums(kept)}
    with tempfile.TemporaryDirectory(prefix="ckpm-") as name:
        base = Path(name)
        again = _build(request, base / "again", toolchain(base / "cache"), jobs)
        leaked = [line for files in (kept, again) for line in leaks(files, _folders(request, base))]
        return len(again), [*differences(first, _sums(again)), *dict.fromkeys(leaked)]


def _build(request: BuildRequest, work: Path, toolchain: Toolchain, jobs: int) -> dict[str, Path]:
    """Build in ``work`` without an object cache; return the artifacts."""
    work.mkdir(parents=True)
    once = dataclasses.replace(request, work=work, object_cache=None, toolchain=toolchain)
    building.run(once, jobs=jobs)
    return artifacts(work / request.folder)


def _sums(files: Mapping[str, Path]) -> dict[str, str]:
    return {name: sha256_of(file) for name, file in files.items()}


def _folders(request: BuildRequest, base: Path) -> tuple[Path, ...]:
    """Folders whose names no artifact may contain."""
    folders = [base, settings.cache_folder(), request.tree.root, PROJECT]
    with contextlib.suppress(RuntimeError):  # a user without one
        folders.append(Path.home())
    return tuple(folders)


def run(request: BuildRequest, jobs: int, built: Path | None) -> None:
    """Build once and compare with ``built``/build, or build twice."""

    def toolchain(cache: Path) -> Toolchain:
        return dataclasses.replace(detect(request.toolchain.name, cache=cache), flags=request.toolchain.flags)

    if built:
        count, lines = build_again(request, Path(os.path.realpath(built)) / request.folder, toolchain, jobs)
    else:
        count, lines = build_twice(request, toolchain, jobs)
    if lines:
        raise CheckFailedError(
            f"two builds of {count} artifacts in two folders differ, or hold folders of this machine:\n  "
            + "\n  ".join(lines),
            kind="not-reproducible",
        )
    show(f"reproducible: {count} artifacts are equal byte for byte and hold no folder's name")

"""``python -m ckpm.reports.release.libraries``: make the wheel of the prebuilt libraries that callers install.

The libraries are those of ``ckpm build --upstream ckpm --profile serving`` for each arch, in build/ of a clean clone.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ckpm.base import settings
from ckpm.base.display import show
from ckpm.base.entry import exit_code
from ckpm.base.errors import CheckFailedError, RecordError
from ckpm.base.files import make_folder, sha256_of
from ckpm.base.paths import PROJECT, data
from ckpm.base.processes import python_command, tool_environment
from ckpm.kernels.families.libraries import build_command
from ckpm.kernels.library.manifest import MANIFEST, Manifest, check_library
from ckpm.kernels.library.request import LIBRARY
from ckpm.kernels.upstream.trees import locate
from ckpm.matrix.options import Parser, split_words
from ckpm.reports.release.contents import PROVENANCE
from ckpm.reports.release.run import read_checkout
from ckpm.reports.release.stages import read_stages
from ckpm.reports.release.statements import library_provenance

UPSTREAM = "ckpm-serving"
_TEMPLATE = data("reports", "release", "prebuilt")
_PACKAGE = "ckpm_libraries"


def parser() -> argparse.ArgumentParser:
    root = Parser(prog="python -m ckpm.reports.release.libraries", description=__doc__)
    archs = ", ".join(read_stages().archs)
    root.add_argument("--arch", action="append", metavar="ARCH", help=f"repeat it (default: {archs})")
    root.add_argument("--work", type=Path, default=Path(), metavar="DIR", help="folder with build/ (default: here)")
    return root


def run(args: argparse.Namespace) -> None:
    """Make the wheel below build/wheels."""
    checkout = read_checkout(PROJECT)
    archs = split_words("--arch", args.arch, read_stages().archs)
    folders = {arch: args.work.absolute() / "build" / arch / UPSTREAM for arch in archs}
    manifests = {arch: _read(folder, arch) for arch, folder in folders.items()}
    with tempfile.TemporaryDirectory(prefix="ckpm-") as temporary:
        project = Path(temporary) / "project"
        shutil.copytree(_TEMPLATE, project, ignore=shutil.ignore_patterns("__pycache__"))
        for arch, folder in folders.items():
            target = project / _PACKAGE / arch / UPSTREAM
            target.mkdir(parents=True)
            for name in (LIBRARY, MANIFEST):
                shutil.copyfile(folder / name, target / name)
        files = sorted(file for file in (project / _PACKAGE).rglob("*") if file.name in (LIBRARY, MANIFEST))
        sums = {str(file.relative_to(project / _PACKAGE)): sha256_of(file) for file in files}
        (project / _PACKAGE / PROVENANCE).write_bytes(
            library_provenance(sums, manifests, checkout.commit, checkout.source)
        )
        wheel = _make_wheel(project, args.work.absolute() / "build" / "wheels")
    for arch, manifest in manifests.items():
        show(f"{arch}: {len(manifest.kernels)} kernels, {(folders[arch] / LIBRARY).stat().st_size / 1e6:.1f} MB")
    show(f"{wheel}: {wheel.stat().st_size / 1e6:.1f} MB")


def _read(folder: Path, arch: str) -> Manifest:
    """Return the manifest of a library that was built of this clone's headers."""
    command = build_command((arch,), UPSTREAM)
    if not (folder / LIBRARY).is_file():
        raise RecordError(f"{folder / LIBRARY}: no such library. Build it: {command}.", kind="missing")
    manifest = Manifest.read(folder / MANIFEST)
    check_library(folder / LIBRARY, manifest)
    tree = locate(UPSTREAM, cache=settings.cache_folder())
    if manifest.upstream_identity != tree.identity:
        raise RecordError(
            f"{folder}: built of {manifest.upstream_identity}, and this clone has {tree.identity}. Build it again: "
            f"{command}.",
            kind="stale",
        )
    return manifest


def _make_wheel(project: Path, target: Path) -> Path:
    """Build the project and return the wheel."""
    output = project / "made"
    command = python_command("-m", "hatchling", "build", "-t", "wheel", "-d", str(output))
    done = subprocess.run(command, cwd=project, env=tool_environment(), text=True, capture_output=True, check=False)
    if done.returncode:
        raise CheckFailedError(f"the wheel can't be made:\n{done.stderr.strip()}")
    (wheel,) = output.iterdir()
    make_folder(target)
    return Path(shutil.move(wheel, target / wheel.name))


def main(argv: Sequence[str] | None = None) -> int:
    def command() -> int:
        run(parser().parse_args(argv))
        return 0

    return exit_code(command)


if __name__ == "__main__":
    sys.exit(main())

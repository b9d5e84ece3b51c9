"""The inputs of a release: a clean checkout, an undamaged upstream, pinned images, a ledger without expired entries."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.errors import SetupError, TrustError
from ckpm.kernels.upstream.trees import damage, package_folder
from ckpm.matrix.dialects import PackagedUpstream

_PINNED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:-]*@sha256:[0-9a-f]{64}")
_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """A clean checkout. ``epoch`` is its commit's time in seconds since 1970: the time of everything in a bundle."""

    root: Path
    commit: str
    epoch: int


def read_checkout(root: Path) -> Checkout:
    """Read a clean checkout. Raises SetupError: not a clone, or files that are changed or not in git."""
    changed = _git(root, "status", "--porcelain", "--untracked-files=all").splitlines()
    if changed:
        more = [f"and {len(changed) - _SHOWN} more"] if len(changed) > _SHOWN else []
        raise SetupError(
            f"{root}: a release is made of a commit, and these files are not as committed. Commit or stash them:\n  "
            + "\n  ".join([*changed[:_SHOWN], *more]),
            kind="dirty",
        )
    commit, epoch = _git(root, "show", "--no-patch", "--format=%H %ct", "HEAD").split()
    return Checkout(root=root, commit=commit, epoch=int(epoch))


def demand_undamaged(package: PackagedUpstream, cache: Path) -> None:
    """Raise SetupError if a file of the unpacked upstream is not as published, or can't be checked."""
    if damaged := damage(package, cache):
        folder = package_folder(package, cache)
        more = [f"and {len(damaged) - _SHOWN} more"] if len(damaged) > _SHOWN else []
        lines = "\n  ".join([*damaged[:_SHOWN], *more])
        raise SetupError(
            f"upstream {package.name} in {folder} is not as published. Delete it: it is unpacked again.\n  {lines}",
            kind="dirty",
        )


def demand_pinned(images: Sequence[str]) -> None:
    """Raises TrustError: a reference without a digest."""
    for image in images:
        if not _PINNED.fullmatch(image):
            raise TrustError(
                f"image {image}: not pinned. Name it as NAME@sha256: and 64 hexadecimal digits.", kind="unpinned-image"
            )


def _git(root: Path, *words: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
    except OSError as error:
        raise SetupError(
            f"git can't be started ({error.strerror}): a release needs it to know its commit.", kind="dirty"
        ) from error
    if done.returncode:
        raise SetupError(
            f"{root}: git: {done.stderr.strip()}. A release is made in a clone with a commit.", kind="dirty"
        )
    return done.stdout

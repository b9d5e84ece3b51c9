"""Ask git which files differ between a revision and the working tree, and get the files of the revision."""

from __future__ import annotations

import io
import subprocess
import zipfile
from pathlib import Path

from ckpm.base.errors import SetupError, UsageError
from ckpm.base.processes import run_git


def changed_paths(root: Path, revision: str) -> tuple[str, ...]:
    """Files that differ between a commit and the working tree, by path: changed, added, deleted, not yet added.

    A renamed file counts under both names; an ignored one does not count.

    Args:
        root: the top folder of the checkout.
        revision: a full commit id, as :func:`commit_of` gives.
    """
    tracked = _git(root, "diff", "--name-only", "--no-renames", "-z", revision, "--")
    new = _git(root, "ls-files", "--others", "--exclude-standard", "-z")
    return tuple(sorted({path for path in (tracked + new).decode(errors="surrogateescape").split("\0") if path}))


def commit_of(root: Path, revision: str) -> str:
    """The full id of the commit that ``revision`` names."""
    top = Path(_git(root, "rev-parse", "--show-toplevel").decode().strip())
    if top.resolve() != root.resolve():
        raise SetupError(
            f"{root} lies in the checkout {top} and is none of its own. Run this in a git clone.", kind="checkout"
        )
    answer = _run(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if answer.returncode == 0:
        return answer.stdout.decode().strip()
    if _git(root, "rev-parse", "--is-shallow-repository").strip() == b"true":
        raise SetupError(
            f"--since {revision}: this clone is shallow and does not have that commit. "
            "Fetch the history (git fetch --unshallow) and try again.",
            kind="shallow-clone",
        )
    raise UsageError(
        f"--since {revision}: there is no such commit here. Name one of `git log --all`, "
        "or fetch the branch that has it.",
        kind="revision",
    )


def extract(root: Path, commit: str, folder: Path) -> None:
    """Write the files of a commit into ``folder``."""
    with zipfile.ZipFile(io.BytesIO(_git(root, "archive", "--format=zip", commit))) as files:
        files.extractall(folder)


def _git(root: Path, *arguments: str) -> bytes:
    answer = _run(root, *arguments)
    if answer.returncode != 0:
        reason = answer.stderr.decode(errors="replace").strip()
        raise SetupError(f"{root}: git can't tell what changed: {reason}. Run this in a git clone.", kind="checkout")
    return answer.stdout


def _run(root: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return run_git(root, *arguments)
    except OSError as error:
        raise SetupError(f"git can't be started: {error.strerror}. Install git.", kind="checkout") from error

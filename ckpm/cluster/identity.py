"""The identity of a machine: its project's text, toolchain and upstream, on which its results depend.

Every worker compares its identity with the client's before it works, so results of two commits are never mixed. The
identity has the digest of the rooms' text, including uncommitted changes, and the commit if git is available.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.paths import IMPORTS, program_digest
from ckpm.base.processes import git
from ckpm.kernels.code.toolchains import detect
from ckpm.kernels.upstream.tree import Tree
from ckpm.kernels.upstream.trees import locate


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """An identity. ``text`` is the digest of the rooms' text. ``commit`` is '' without git, unneeded parts are ''."""

    text: str
    commit: str
    toolchain: str = ""
    upstream: str = ""

    def differences(self, worker: Identity) -> list[str]:
        """One line for each part in which a worker differs from this client.

        Commits are only compared if both are known, because the text decides.
        """
        lines = []
        for name in (field.name for field in dataclasses.fields(self)):
            client_value, worker_value = getattr(self, name), getattr(worker, name)
            if client_value != worker_value and (name != "commit" or (client_value and worker_value)):
                lines.append(f"{name}: the client's {client_value or 'none'}, the worker's {worker_value or 'none'}")
        return lines


@functools.cache
def project(root: Path = IMPORTS) -> Identity:
    """Digest and commit of this project at the first call in this process."""
    commit = (git(root, "rev-parse", "HEAD") or b"").decode().strip()
    return Identity(text=program_digest(root), commit=commit)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSources:
    """Names of a build's toolchain and upstream, valid on every machine. ``ck_root`` is a path or ''."""

    toolchain: str
    upstream: str
    ck_root: str = ""

    def tree(self, cache: Path) -> Tree:
        """The tree of the upstream on this machine."""
        return locate(self.upstream, cache=cache, ck_root=Path(self.ck_root) if self.ck_root else None)

    def identity(self, cache: Path) -> Identity:
        """The identity of this machine."""
        toolchain = detect(self.toolchain, cache=cache)
        return dataclasses.replace(project(), toolchain=toolchain.identity, upstream=self.tree(cache).identity)

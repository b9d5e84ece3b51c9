"""The record of a CK source tree, which ckpm.kernels.upstream.trees makes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ckpm.kernels.upstream.headers import State

FMHA = Path("example/ck_tile/01_fmha")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A CK source tree on this machine.

    ``identity`` names its content without a path (package file and sha256, or the digest of the files that kernels
    include) and enters every build signature.
    """

    name: str
    root: Path
    dialect: str
    identity: str
    selector_takes_base: bool
    headers: tuple[State, ...] = field(default=(), compare=False, repr=False)  # the files of the identity
    newer: tuple[str, ...] = field(default=(), compare=False)  # features of a checkout that its dialect lacks
    own: tuple[Path, ...] = ()  # folders of our own headers, before the tree's

    def words_of_newer(self) -> str:
        """Explain ``newer`` in a sentence."""
        return (
            f"{self.root} is newer than dialect {self.dialect}, which has no kernels for {', '.join(self.newer)}; all "
            "others are built as ever"
        )

    @property
    def unseen(self) -> tuple[str, ...]:
        """The features of a checkout whose combination is not one of the stored dialects."""
        return tuple(self.dialect.split("+")[1:])

    def words_of_unseen(self) -> str:
        """Explain ``unseen`` in a sentence."""
        return (
            f"{self.root} has features of pull requests that no stored dialect has together: {', '.join(self.unseen)}. "
            "Names are compared with its own codegen before a build"
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences about what the dialect lacks of a checkout, or what was never seen of it."""
        return (*((self.words_of_newer(),) if self.newer else ()), *((self.words_of_unseen(),) if self.unseen else ()))

    @property
    def fmha(self) -> Path:
        return self.root / FMHA

    @property
    def includes(self) -> tuple[Path, ...]:
        return (*self.own, self.root / "include", self.fmha)

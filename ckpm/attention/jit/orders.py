"""A compile order: the kernels to compile into one library for a wanted kernel, with CK and the compiler to take.

The process that compiles reads the order from a file. So both processes make the same request to kernels/library. An
order among kernels, as in ckpm/attention/selection.py, is something else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpm.base import settings
from ckpm.base.errors import RecordError, UsageError
from ckpm.base.files import write_atomically
from ckpm.base.records import Source, as_text
from ckpm.base.rocm_choice import TOOLCHAINS
from ckpm.kernels.code.toolchains import Toolchain
from ckpm.kernels.families.libraries import libraries, library_of, library_with
from ckpm.kernels.families.table import FAMILIES
from ckpm.kernels.library.request import BuildRequest
from ckpm.kernels.upstream.tree import Tree
from ckpm.kernels.upstream.trees import locate
from ckpm.matrix.defects import defect_of
from ckpm.matrix.dialects import check_built_arch, dialect, own_upstreams
from ckpm.matrix.explain import find_key, receipts_with, why
from ckpm.matrix.keys import Key
from ckpm.matrix.selection import Selection, select


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Origin of the kernels: the words of ``--upstream``, ``--toolchain``, ``--ck-root`` and ``--headers``."""

    upstream: str
    toolchain: str = TOOLCHAINS[0]
    ck_root: str = ""
    headers: str = ""

    def tree(self, cache: Path) -> Tree:
        """CK's tree."""
        ck_root, headers = (Path(path) if path else None for path in (self.ck_root, self.headers))
        return locate(self.upstream, cache=cache, ck_root=ck_root, headers=headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The compile order of one library: ``names`` are its kernels for one ``arch``, the wanted kernel first."""

    origin: Place
    arch: str
    names: tuple[str, ...]
    families: tuple[str, ...]
    receipt: int
    mask_impl: str

    def request(self, tree: Tree, toolchain: Toolchain, work: Path) -> BuildRequest:
        """The request to kernels/library in the folder ``work``. Objects go through the cache that builds share."""
        names = ", ".join(f"'{name}'" for name in self.names)
        return BuildRequest(
            selection=Selection(
                archs=(self.arch,),
                families=self.families,
                receipt=self.receipt,
                mask_impl=self.mask_impl,
                where=(f"key.name in ({names},)",),
            ),
            tree=tree,
            toolchain=toolchain,
            work=work,
            object_cache=settings.cache_folder() / "objects",
        )

    def write(self, file: Path) -> None:
        """Replace ``file`` in one step."""
        write_atomically(file, as_text(dataclasses.asdict(self)))

    @classmethod
    def read(cls, file: Path) -> Order:
        """Read a compile order."""
        return Source(file, "an order", "Ask for the kernel again.", RecordError).read().record(cls)


def order_for(kernel: str | Key, origin: Place, arch: str, dialect_name: str) -> tuple[Order, tuple[Key, ...]]:
    """The compile order of one kernel of a dialect, by key or name, and the keys of its library.

    The library also has the kernels of later stages that serve the kernel, such as split-KV's combine kernels. In a
    name, ``nmask`` stands for no mask of the simplified set. A key contains its mask set.

    Raises:
        CkPrefillError: the arch or dialect has no such kernel, or no library is made of it alone.
        UsageError: this CK can't compile the kernel.
    """
    check_built_arch(arch)
    chosen = dialect(dialect_name)
    name, masks = (kernel.name, kernel.mask_impl) if isinstance(kernel, Key) else (kernel, "")
    family, key = find_key(chosen, name, masks or "simplified")
    if family.name not in FAMILIES:
        raise UsageError(f"{name}: of {family.name} only names are known, so there is no C++ to compile.")
    if library_with(family.name) != family.name:
        raise UsageError(
            f"{name}: kernels of {family.name} are built into a library of {library_with(family.name)}, each of whose "
            "kernels brings those that serve it. Ask for one of these."
        )
    kept_by = receipts_with(family, key)
    receipt = 0 if 0 in kept_by or not kept_by else kept_by[0]
    selection = Selection(
        archs=(arch,), families=(family.name,), receipt=receipt, mask_impl=key.mask_impl or "simplified"
    )
    if reasons := why(chosen, selection, key.name).reasons:
        raise UsageError(f"{name}: {arch} has no such kernel: {reasons[0].text}.", kind="empty-selection")
    if defect := defect_of(key, dialect_name):
        raise UsageError(f"{name}: this CK can't compile it ({defect.name}): {defect.reason}", kind="empty-selection")
    members = libraries()[family.name]
    library_of(members, dialect_name, origin.upstream in own_upstreams())
    others = tuple(name for name in members if name != family.name)
    keys = (key, *_kernels_that_serve(key, dataclasses.replace(selection, families=others), dialect_name))
    order = Order(
        origin=origin,
        arch=arch,
        names=tuple(member.name for member in keys),
        families=members,
        receipt=receipt,
        mask_impl=selection.mask_impl,
    )
    return order, keys


def _kernels_that_serve(key: Key, selection: Selection, dialect_name: str) -> Sequence[Key]:
    """The kernels of other stages that may serve a key; none for a library of one stage."""
    if not selection.families:
        return ()
    return [
        candidate
        for candidate in select(dialect(dialect_name), selection)
        if FAMILIES[candidate.family].serves(candidate, key)
    ]

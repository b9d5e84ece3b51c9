"""The content key of a library that is compiled on demand: whatever decides about its bytes, and no path.

A key that leaves one of these out finds a library that was made for something else; upstream's own is the kernel's name
alone. tests/unit/attention/test_jit_content.py changes each in turn.
"""

from __future__ import annotations

from collections.abc import Sequence

from ckpm.kernels.families.libraries import host
from ckpm.kernels.families.render import dispatch_text, plan_units, unit_text
from ckpm.kernels.families.words import features as features_of
from ckpm.kernels.library.plan import signature
from ckpm.kernels.library.request import VERSION_SCRIPT, Request, identity_of
from ckpm.matrix.keys import Key

VERSION = 1  # of an entry: what is in it, and how that is made from what the key names


def texts(request: Request, keys: Sequence[Key]) -> dict[str, str]:
    """The library's C++ by file: units, dispatch, harness. Raises UsageError: of this dialect only names are known."""
    tree = request.tree
    features = features_of(tree.dialect, selector_takes_base=tree.selector_takes_base)
    units = {f"{unit.name}.hip": unit_text(unit, features) for unit in plan_units(keys, request.unit_size)}
    return {
        **units,
        "dispatch.hip": dispatch_text(keys, features),
        "harness.hip": host(request.library).harness(tree.dialect, features),
    }


def content_key(request: Request, rendered: dict[str, str]) -> str:
    """The content key: 32 hex digits.

    They depend on the entry's version, arch, flags, linker's words, dialect and text. They depend also on the
    identities of the compiler, of the upstream with its headers, and of our own headers.
    """
    toolchain = request.toolchain
    return signature(
        f"jit {VERSION}",
        request.selection.archs,
        identity_of(request),
        toolchain.flags,
        (*toolchain.link_flags, VERSION_SCRIPT.read_text(encoding="utf-8")),
        (request.tree.name, request.tree.dialect, request.selection.mask_impl),
        [word for file in sorted(rendered) for word in (file, rendered[file])],
    )

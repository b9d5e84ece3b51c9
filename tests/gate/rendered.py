"""Digests of the outputs of a checkout's tables, templates and headers. Runs as a script in the checkout.

``python -I rendered.py ROOT FAMILY...`` prints {"kernels": {"DIALECT FAMILY": {name: digest}}, "libraries": {...}}. A
kernel's digest is over its C++ text for every arch trait, mask set and some receipts, or, in a dialect that only names
are known of, over its fields. A library's is over what a build of its smoke tier would compile and sign. Nothing here
comes from ckpm/kernels/changes, which is judged by it.
"""

from __future__ import annotations

import gc
import hashlib
import itertools
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

RECEIPTS = (0, 2, 200, 600)


def kernels(families: list[str]) -> dict[str, dict[str, str]]:
    from ckpm.kernels.families.libraries import host, library_with
    from ckpm.kernels.families.render import instance_text
    from ckpm.kernels.families.spellings import features as features_of
    from ckpm.kernels.families.table import FAMILIES
    from ckpm.matrix.dialects import dialect, dialect_names
    from ckpm.matrix.enumeration import enumerate_keys

    digests: dict[str, dict[str, str]] = {}
    for name in dialect_names():
        for family in (family for family in dialect(name).all_families() if family.name in families):
            rendered = family.name in FAMILIES and host(library_with(family.name)).renders(name)
            features = features_of(name) if rendered else None
            archs = {traits: arch for arch, traits in family.archs.items()}.values()
            requests = itertools.product(archs, RECEIPTS, ("simplified", "generic"))
            lists = (
                enumerate_keys(family, arch=arch, receipt=number, mask_impl=mask) for arch, number, mask in requests
            )
            texts: dict[str, set[str]] = {}
            for key in {*itertools.chain.from_iterable(lists)}:
                text = instance_text(key, features) if features else json.dumps(key.row())
                texts.setdefault(key.name, set()).add(text)
            digests[f"{name} {family.name}"] = {kernel: _digest(*sorted(texts[kernel])) for kernel in texts}
    return digests


def libraries() -> dict[str, str]:
    """Digests of the smoke tier for gfx950: every source and every input of a build's signatures."""
    from ckpm.base.settings import cache_folder
    from ckpm.kernels.code.toolchains import Toolchain, embedded
    from ckpm.kernels.families.libraries import libraries as all_libraries
    from ckpm.kernels.library.request import BuildRequest, prepare
    from ckpm.kernels.upstream.tree import Tree
    from ckpm.matrix.selection import Selection

    digests = {}
    for upstream, dialect in (("aiter", "ck-2025-11"), ("flash-attn", "ck-2025-06")):
        for library, families in all_libraries().items():
            if upstream != "aiter" and library != "batch_prefill":
                continue
            with tempfile.TemporaryDirectory() as folder:
                work = Path(folder)
                tree = Tree(name=upstream, root=work, dialect=dialect, identity="one", selector_takes_base=False)
                toolchain: Toolchain = embedded.find(cache=cache_folder())
                selection = Selection(archs=("gfx950",), families=families, tier="smoke")
                request = BuildRequest(
                    selection=selection, tree=tree, toolchain=toolchain, work=work, object_cache=None
                )
                plan, _ = prepare(request)
                sources = sorted((work / request.folder / "src").glob("*.hip"))
                parts = [step.signature for step in plan.steps] + [file.read_text() for file in sources]
                digests[f"{upstream} {library}"] = _digest(*parts)
    return digests


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def main() -> None:
    gc.disable()  # keys are kept to the end
    root, *families = sys.argv[1:]
    sys.dont_write_bytecode = True
    sys.path.insert(0, root)
    outputs: dict[str, Any] = {"kernels": kernels(families), "libraries": libraries()}
    json.dump(outputs, sys.stdout)


if __name__ == "__main__":
    main()

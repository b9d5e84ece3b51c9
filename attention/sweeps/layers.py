"""Kernels split over libraries so that each of them can be launched.

Libraries of fwd's C ABI take no kernel's name: of kernels with one signature, which differ in tile, padding or pipeline
alone, their dispatch takes the first that fits. So each goes into a library of its own, with the kernels of other
signatures. A library whose launches take a name holds them all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import attrgetter

from ckpm.kernels.families.libraries import host, libraries, library_with
from ckpm.matrix.keys import Key

_SIGNATURE = attrgetter(
    *("family", "dtype", "hdim_q", "hdim_v", "mode", "vlayout", "logits", "mask", "bias", "qscale", "sink", "lse"),
    *("dropout", "skip", "paged_kv", "page_size", "kv_layout", "kv_table"),
)


def layers(keys: Sequence[Key]) -> tuple[tuple[Key, ...], ...]:
    """The kernels of each library, in dispatch order: the n-th of each signature are in the n-th library.

    All of ``keys`` are of one library's families. Kernels of a second stage, which follow from the first, are in all.
    """
    library = library_with(keys[0].family)
    if host(library).arguments.BY_NAME:
        return (tuple(keys),)
    first = stage_one(library)
    seen: Counter[object] = Counter()
    split: list[list[Key]] = []
    for key in keys:
        if key.family != first:
            continue
        signature = _SIGNATURE(key)
        if seen[signature] == len(split):
            split.append([])
        split[seen[signature]].append(key)
        seen[signature] += 1
    others = [key for key in keys if key.family != first]
    return tuple((*others, *own) for own in split)


def stage_one(library: str) -> str:
    """The family whose kernel a call of the library runs first: the one that is chosen."""
    return next(family for family in libraries()[library] if family == library)

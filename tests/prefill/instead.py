"""Cases of the known defects of upstream's batch prefill that pass with the kernels of ``ckpm``.

The ledger has no entry for ckpm. tests/unit/matrix/test_instead.py checks that every entry has a case here that the
entry selects. tests/prefill/test_instead_passes.py builds the kernels and runs the cases.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ckpm.matrix.keys import Key
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.problems.problem import loads
from ckpm.matrix.problems.serving import serving_kernels

ARCH = "gfx950"
UPSTREAM = "ckpm"
V3 = "ckpm-v3"
EXTENDED = "ckpm-extended"

INSTEAD: Mapping[str, str] = {
    "registers-of-asm-loads-are-moved-before-the-wait": "sanitize/full_cross.bf16-m128-causal-alibi",
    "registers-of-asm-loads-are-moved-in-kernels-without-a-mask": "sanitize/full_cross.bf16-m128-full-alibi",
    "dropout-writes-past-lds": "batch-prefill/features.drop-q100k100",
    "table-of-a-large-pool-read-past-end": "page-fault/large.ps1",
    "table-read-past-end-and-dropout-past-lds": "page-fault/features.drop",
    "table-read-past-end": "page-fault/lengths.m64-q64k33",
    "padding-pages-enter-as-zero-times-v": "page-fault/poison.nan_page",
    "alibi-of-a-general-window": "batch-prefill/cross.bf16-local-alibi-lse-q130k463",
    "rows-of-minus-infinity-without-a-mask": "batch-prefill/bias_of_minus_infinity.full",
    "alibi-beyond-65535-keys": "batch-prefill/long.q1k65537-alibi",
    "window-start-ignored-in-page-table": "batch-prefill/windows.bottom_right-win31_0-q70k600",
    "kv-pool-over-4-gb": "large-kv/batches.ps1-g8-b4",
    "head-dim-below-128-reads-neighbours": "batch-prefill/head_dims.d64-causal",
    "head-dim-below-128-reads-neighbours-in-2026": "page-fault/head_dims.d64",
    "unused-slots-of-last-pages-enter-as-zero-times-v": "page-fault/stale_slots.ps16-vectorized",
    "ranges-of-heads-reach-behind-the-pool": "page-fault/paged_heads.vectorized",
}


def kernels_for(problem: SuiteCase, keys: Iterable[Key]) -> list[Key]:
    """The kernels that a launch of the problem may take, one for each load mode. ``keys`` are in dispatch order.

    Pages of one token are always read with 64-bit addresses (load_mode.hpp). Kernels of V3 have no load mode.
    """
    able = serving_kernels(keys, problem)
    modes = ("gload",) if problem.page_size == 1 else loads(problem)
    first = (next((key for key in able if key.load in (mode, None)), None) for mode in modes)
    return list(dict.fromkeys(key for key in first if key is not None))

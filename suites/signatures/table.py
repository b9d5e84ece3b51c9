"""The signatures that entries of matrix/ledger.yaml name: what a case shows whose kernel has that defect and no other.

A signature of a wrong result predicts O, LSE and where they are NaN; the launch must agree in every element. One of a
fault names the access. The case then runs again without the cause of the fault.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from ckpm.attention.launch.buffers import Prepared
from ckpm.attention.launch.launching import Outcome
from ckpm.attention.reference import Expected, exact, visible
from ckpm.attention.tolerances import compare_lse, compare_o
from ckpm.matrix.keys import Key
from ckpm.matrix.problems.case import SuiteCase
from ckpm.suites.philox import drawn
from ckpm.suites.signatures.reading import KEYS_OF_A_STEP, Computed, Reading, compute_outputs, exactly

Prediction = Callable[[Outcome, Key], Computed | None]


def _reads(**switches: bool) -> Prediction:
    return lambda outcome, key: compute_outputs(outcome.prepared, key.tile.bm0, key.hdim_q, Reading(**switches))


def _rows_of_minus_infinity(outcome: Outcome, key: Key) -> Computed | None:
    """O is NaN in rows that see keys, all with a bias of -inf."""
    inputs = outcome.prepared.inputs
    if inputs.bias is None:
        return None
    p, predicted, start = inputs.problem, exactly(_reference(outcome)), 0
    for bias, queries, keys in zip(inputs.bias, p.seqlens_q, p.seqlens_k, strict=True):
        seen = visible(p, queries, keys)
        hidden = np.asarray(np.isneginf(np.where(seen, bias, -np.inf)).all(axis=2)) & np.asarray(seen.any(axis=1))
        predicted.o_nan[start : start + queries] = np.transpose(hidden)[..., None]  # of [head, query]
        start += queries
    return predicted


def _alibi_from_the_top_left(outcome: Outcome, key: Key) -> Computed | None:
    """Distances of ALiBi as if the first query stood at the first key, and windows as if they began there, too: who has
    the one defect has the other.
    """
    prepared = _with_alibi(outcome, lambda row, column, slope: -slope * np.abs(row - column))
    return None if prepared is None else compute_outputs(prepared, key.tile.bm0, key.hdim_q, Reading(first_pages=True))


def _alibi_of_16_bits(outcome: Outcome, key: Key) -> Computed | None:
    """A causal mask's distances start again from 0 at key 65536."""
    prepared = _with_alibi(outcome, lambda row, column, slope: slope * (column & 0xFFFF) + 0.0 * row)
    return None if prepared is None else compute_outputs(prepared, key.tile.bm0, key.hdim_q, Reading())


def _with_alibi(outcome: Outcome, added: Callable[..., np.ndarray]) -> Prepared | None:
    """The launch with a bias of each row, column and slope in place of ALiBi; None without slopes."""
    prepared = outcome.prepared
    p, slopes = prepared.problem, prepared.inputs.slopes
    if slopes is None:
        return None
    bias = []
    for queries, keys, own in zip(p.seqlens_q, p.seqlens_k, slopes, strict=True):
        row, column = np.ogrid[:queries, :keys]
        bias.append(np.stack([added(row, column, float(slope)) for slope in own]))
    return dataclasses.replace(prepared, inputs=dataclasses.replace(prepared.inputs, bias=tuple(bias), slopes=None))


def _reference(outcome: Outcome) -> Expected:
    p = outcome.prepared.problem
    return exact(outcome.prepared.inputs, drawn(p) if p.p_drop else None)


PREDICTIONS: Mapping[str, Prediction] = {
    "whole_rows_are_read": _reads(whole_rows=True),
    "steps_are_read_whole": _reads(past_the_end=True),
    "windows_start_at_the_first_page": _reads(first_pages=True),
    "offsets_of_32_bits": _reads(offsets_of_32_bits=True),
    "rows_of_minus_infinity_are_nan": _rows_of_minus_infinity,
    "alibi_and_windows_start_at_the_top_left": _alibi_from_the_top_left,
    "alibi_of_16_bits": _alibi_of_16_bits,
}


def why_not_predicted(name: str, outcome: Outcome, key: Key) -> str:
    """Differences of O and LSE from the signature's prediction; "" if there are none."""
    prediction = PREDICTIONS[name](outcome, key)
    if prediction is None:
        return "it has no prediction for this layout"
    p, expected, o = outcome.prepared.problem, prediction.expected, outcome.o()
    compared = [("O", o, prediction.o_nan, compare_o, expected.o)]
    if p.lse:
        compared.append(("LSE", outcome.lse().astype(np.float64), prediction.lse_nan, compare_lse, expected.lse))
    bad = []
    for word, got, nan, compare, want in compared:
        if other := int((np.isnan(got) != nan).sum()):
            bad.append(f"{other} of {got.size} elements of {word} are NaN and should not be, or the reverse")
        found = compare(p, np.where(nan, want, got), expected)
        if not found.passed:
            bad.append(str(found))
    return "; ".join(bad)


def _table_end(outcome: Outcome) -> str:
    """A load right after the page table, no further than the last step's keys and one slice of V reach."""
    fault = outcome.fault.fields if outcome.fault else {}
    p, table = outcome.prepared.problem, outcome.prepared.buffers["kv_page_indices"]
    end = outcome.addresses["kv_page_indices"] + table.size
    furthest = end + 4 * 2 * KEYS_OF_A_STEP
    if fault["access"] != "load" or not end - fault["bytes"] < fault["address"] < furthest:
        return f"the access is not a load within {furthest - end} bytes after the page table of {p.name}"
    return ""


def _lds_end(outcome: Outcome) -> str:
    """A store of single bytes after the workgroup's LDS."""
    fault = outcome.fault.fields if outcome.fault else {}
    if fault["kind"] != "lds" or not fault["text"].startswith("ds_write_b8"):
        return "the access is not a store of a byte past the LDS"
    return ""


def _pool_end(outcome: Outcome) -> str:
    """A buffer resource whose range ends after K's or V's pool, by no more than the last head's offset in a page."""
    fault = outcome.fault.fields if outcome.fault else {}
    prepared = outcome.prepared
    p = prepared.problem
    for name in ("k", "v"):
        end = outcome.addresses[name] + prepared.buffers[name].size
        reach = (p.nhead_k - 1) * int(prepared.fields[f"nhead_stride_{name}"]) * p.element_bytes
        if fault["kind"] == "srd_range" and end <= fault["address"] < end + reach:
            return ""
    return f"no range of a buffer resource ends after a pool of {p.name} by a head's offset"


# name -> which fault it is, and the problem without what leads to it (None: nothing else can be launched)
FAULTS: Mapping[str, tuple[Callable[[Outcome], str], Callable[[SuiteCase], SuiteCase | None]]] = {
    "table_is_read_past_its_end": (_table_end, lambda problem: dataclasses.replace(problem, table_end="zeros")),
    "bytes_are_stored_past_lds": (_lds_end, lambda problem: None),
    # then the last pages of the pool are free
    "num_records_reach_behind_the_pool": (
        _pool_end,
        lambda problem: dataclasses.replace(problem, page_order="identity"),
    ),
}

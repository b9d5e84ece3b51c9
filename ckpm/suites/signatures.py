"""Signatures of the entries of matrix/ledger.yaml: results of a case whose kernel has this defect and no other.

The signature of a wrong result predicts O, LSE and where they are NaN; the launch must agree in every element. The
signature of a fault names the access. The case then runs again without the cause of the fault.

A defect of reading K and V is one of :class:`Reading`'s switches. :func:`compute_outputs` reads the problem's buffers
as such a kernel does, NaN by NaN. It returns O and LSE with the bounds of their rounding, and where they are NaN.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.launch.buffers import LaunchInputs, Prepared, read
from ckpm.attention.launch.encodings import bits_type, decode
from ckpm.attention.launch.launching import LaunchOutcome
from ckpm.attention.philox import drawn
from ckpm.attention.reference import Expected, Floats, exact, visible
from ckpm.attention.tolerances import compare_lse, compare_o
from ckpm.matrix.keys import Key
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.problems.problem import mask_corner

KEYS_OF_A_STEP = 128  # kN0 of the fp16 and bf16 tiles; fp8 tiles, some with 64, have no predictions
_LINE = 1 << 32
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The defects of reading that a kernel may have.

    In order: it reads whole rows of its own head dim, not the problem's. It reads keys after a sequence's end, up to
    the end of the step, with weights of 0. It takes a window's first key from the first page. It computes offsets and
    sizes of pools in 32 bits.
    """

    whole_rows: bool = False
    past_the_end: bool = False
    first_pages: bool = False
    offsets_of_32_bits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """``o_nan`` [token, head, hdim_v] and ``lse_nan`` [head, token]: where NaN stands in place of ``expected``."""

    expected: Expected
    o_nan: Flags
    lse_nan: Flags


def _reference(inputs: LaunchInputs) -> Expected:
    return exact(inputs, drawn(inputs.problem) if inputs.problem.p_drop else None)


def exactly(expected: Expected) -> Computed:
    """The expected numbers without any NaN."""
    return Computed(
        expected=expected, o_nan=np.zeros(expected.o.shape, np.bool_), lse_nan=np.zeros(expected.lse.shape, np.bool_)
    )


def compute_outputs(prepared: Prepared, rows: int, hdim: int, reading: Reading) -> Computed | None:
    """O and LSE of a kernel with tiles of ``rows`` queries and head dim ``hdim``. None: this layout is not modelled."""
    p = prepared.problem
    if p.kv_layout != "linear" or p.vlayout != "row" or p.qscale != "no":
        return None
    parts = [
        (tokens, _computed_block(prepared, sequence, begin, end, hdim, reading))
        for sequence, tokens, begin, end in _blocks(p, rows)
    ]
    whole = exactly(_reference(prepared.inputs))
    fields = {field.name: getattr(whole.expected, field.name) for field in dataclasses.fields(Expected)}
    for tokens, (part, o_nan, lse_nan) in parts:
        for name, values in fields.items():
            if values.ndim == 3:
                values[tokens] = getattr(part, name)[tokens]
            else:
                values[:, tokens] = getattr(part, name)[:, tokens]
        whole.o_nan[tokens], whole.lse_nan[:, tokens] = o_nan, lse_nan
    return whole


def _blocks(p: SuiteCase, rows: int) -> Iterator[tuple[int, slice, int, int]]:
    """Yield (sequence, slice of its tokens, first query, end of queries) of each tile of queries."""
    start = 0
    for sequence, length in enumerate(p.seqlens_q):
        for begin in range(0, length, rows):
            end = min(begin + rows, length)
            yield sequence, slice(start + begin, start + end), begin, end
        start += length


def _computed_block(
    prepared: Prepared, sequence: int, begin: int, end: int, hdim: int, reading: Reading
) -> tuple[Expected, Flags, Flags]:
    """Numbers of all tokens, right only for the block's tokens; and the block's own NaN of O and LSE."""
    p = prepared.problem
    length, group = p.seqlens_k[sequence], p.nhead_q // p.nhead_k
    first, last = _keys_of(p, sequence, begin, end)
    stop = -(-last // KEYS_OF_A_STEP) * KEYS_OF_A_STEP if reading.past_the_end else last
    shift = first if reading.first_pages else 0
    k = _rows_read(prepared, "k", sequence, np.arange(first, stop) - shift, hdim, reading)
    v = _rows_read(prepared, "v", sequence, np.arange(first, stop) - shift, hdim, reading)
    inputs = prepared.inputs
    own_k, own_v = inputs.k[sequence].copy(), inputs.v[sequence].copy()
    own_k[first:last] = np.nan_to_num(k[: last - first, :, : p.hdim_q])
    own_v[first:last] = np.nan_to_num(v[: last - first, :, : p.hdim_v])
    changed = dataclasses.replace(inputs, k=_with(inputs.k, sequence, own_k), v=_with(inputs.v, sequence, own_v))
    seen = visible(p, p.seqlens_q[sequence], length)[begin:end, first:last]
    bad_scores = np.isnan(k[: last - first]).any(axis=2)  # [key, KV head]: 0 * NaN
    lse_nan = (seen.astype(np.int64) @ bad_scores.astype(np.int64) > 0).T.repeat(group, axis=0)
    bad_columns = np.isnan(v[..., : p.hdim_v]).any(axis=0).repeat(group, axis=0)  # [head, dim], of weight 0 as well
    return _reference(changed), lse_nan.T[..., None] | bad_columns[None], lse_nan


def _with(parts: tuple[Floats, ...], index: int, part: Floats) -> tuple[Floats, ...]:
    return (*parts[:index], part, *parts[index + 1 :])


def _keys_of(p: SuiteCase, sequence: int, begin: int, end: int) -> tuple[int, int]:
    """The keys that a block of queries goes through: from the start of a step to the last that its last query sees.

    Source: CK's block_masking.hpp, GetTileRangeAlongX.
    """
    length = p.seqlens_k[sequence]
    if p.mask == "no":
        return 0, length
    y, x = mask_corner(p, p.seqlens_q[sequence], length)
    first = max(begin - y + 1, 0) // KEYS_OF_A_STEP * KEYS_OF_A_STEP
    last = max(min(end - 1 + x, length), 0)
    return min(first, last), last


def _rows_read(
    prepared: Prepared, tensor: str, sequence: int, positions: NDArray[np.int64], hdim: int, reading: Reading
) -> Floats:
    """Numbers read of K or V at positions of the table, [key, KV head, dim]; 0 where the range check stops a read."""
    p, fields = prepared.problem, prepared.fields
    own = p.hdim_q if tensor == "k" else p.hdim_v
    entries = _entries(prepared, sequence, positions // p.page_size)
    key, head, dim = np.ix_(np.arange(len(positions)), np.arange(p.nhead_k), np.arange(hdim))
    stride = int(fields[f"batch_stride_{tensor}"])
    offset = entries[key] * stride + head * int(fields[f"nhead_stride_{tensor}"]) + dim
    if p.page_size > 1:
        offset = offset + positions[key] % p.page_size * int(fields[f"stride_{tensor}"])
    offset, size = offset * p.element_bytes, prepared.table.pool_pages * stride * p.element_bytes
    if reading.offsets_of_32_bits:
        offset, size = offset % _LINE, size % _LINE
    inside = (offset >= 0) & (offset + p.element_bytes <= size)
    if not reading.whole_rows:
        inside &= dim < own
    name, base = prepared.pointers[tensor]
    bits = read(prepared.buffers[name], np.where(inside, base + offset, 0), bits_type(p.dtype), unwritten=0)
    return np.where(inside, decode(bits, p.dtype, prepared.arch), 0.0)


def _entries(prepared: Prepared, sequence: int, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Pages that the table names, after a sequence's own entries as well; -1 after the table's end."""
    p = prepared.problem
    table = prepared.buffers["kv_page_indices"].writes[0].data.reshape(-1).astype(np.int64)
    if p.kv_table == "vllm":
        at = sequence * (table.size // p.batch) + numbers
    else:
        at = sum(len(pages) for pages in prepared.table.pages[:sequence]) + numbers
    return np.where(at < table.size, table[np.minimum(at, table.size - 1)], -1)


Prediction = Callable[[LaunchOutcome, Key], Computed | None]


def _reads(**switches: bool) -> Prediction:
    return lambda outcome, key: compute_outputs(outcome.prepared, key.tile.bm0, key.hdim_q, Reading(**switches))


def _rows_of_minus_infinity(outcome: LaunchOutcome, key: Key) -> Computed | None:
    """O is NaN in rows that see keys, all with a bias of -inf."""
    inputs = outcome.prepared.inputs
    if inputs.bias is None:
        return None
    p, predicted, start = inputs.problem, exactly(_reference(inputs)), 0
    for bias, queries, keys in zip(inputs.bias, p.seqlens_q, p.seqlens_k, strict=True):
        seen = visible(p, queries, keys)
        hidden = np.asarray(np.isneginf(np.where(seen, bias, -np.inf)).all(axis=2)) & np.asarray(seen.any(axis=1))
        predicted.o_nan[start : start + queries] = np.transpose(hidden)[..., None]  # of [head, query]
        start += queries
    return predicted


def _alibi_from_the_top_left(outcome: LaunchOutcome, key: Key) -> Computed | None:
    """Distances of ALiBi as if the first query stood at the first key, and windows as if they began there: a kernel
    with one of the defects has the other.
    """
    prepared = _with_alibi(outcome, lambda row, column, slope: -slope * np.abs(row - column))
    return None if prepared is None else compute_outputs(prepared, key.tile.bm0, key.hdim_q, Reading(first_pages=True))


def _alibi_of_16_bits(outcome: LaunchOutcome, key: Key) -> Computed | None:
    """A causal mask's distances start again from 0 at key 65536."""
    prepared = _with_alibi(outcome, lambda row, column, slope: slope * (column & 0xFFFF) + 0.0 * row)
    return None if prepared is None else compute_outputs(prepared, key.tile.bm0, key.hdim_q, Reading())


def _with_alibi(outcome: LaunchOutcome, added: Callable[..., np.ndarray]) -> Prepared | None:
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


PREDICTIONS: Mapping[str, Prediction] = {
    "whole_rows_are_read": _reads(whole_rows=True),
    "steps_are_read_whole": _reads(past_the_end=True),
    "windows_start_at_the_first_page": _reads(first_pages=True),
    "offsets_of_32_bits": _reads(offsets_of_32_bits=True),
    "rows_of_minus_infinity_are_nan": _rows_of_minus_infinity,
    "alibi_and_windows_start_at_the_top_left": _alibi_from_the_top_left,
    "alibi_of_16_bits": _alibi_of_16_bits,
}


def why_not_predicted(name: str, outcome: LaunchOutcome, key: Key) -> str:
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
        comparison = compare(p, np.where(nan, want, got), expected)
        if not comparison.passed:
            bad.append(str(comparison))
    return "; ".join(bad)


def _table_end(outcome: LaunchOutcome) -> str:
    """A load past the page table's end that begins less than two steps' entries (1 KB) after the end."""
    fault = outcome.fault.fields if outcome.fault else {}
    p, table = outcome.prepared.problem, outcome.prepared.buffers["kv_page_indices"]
    end = outcome.addresses["kv_page_indices"] + table.size
    furthest = end + 4 * 2 * KEYS_OF_A_STEP
    if fault["access"] != "load" or not end - fault["bytes"] < fault["address"] < furthest:
        return f"the access is not a load within {furthest - end} bytes after the page table of {p.name}"
    return ""


def _lds_end(outcome: LaunchOutcome) -> str:
    """A store of single bytes after the workgroup's LDS."""
    fault = outcome.fault.fields if outcome.fault else {}
    if fault["kind"] != "lds" or not fault["text"].startswith("ds_write_b8"):
        return "the access is not a store of a byte past the LDS"
    return ""


def _pool_end(outcome: LaunchOutcome) -> str:
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


# name -> the check of the fault, and the problem without its cause (None: nothing else can be launched)
FAULTS: Mapping[str, tuple[Callable[[LaunchOutcome], str], Callable[[SuiteCase], SuiteCase | None]]] = {
    "table_is_read_past_its_end": (_table_end, lambda problem: dataclasses.replace(problem, table_end="zeros")),
    "bytes_are_stored_past_lds": (_lds_end, lambda problem: None),
    # then the last pages of the pool are free
    "num_records_reach_behind_the_pool": (
        _pool_end,
        lambda problem: dataclasses.replace(problem, page_order="identity"),
    ),
}

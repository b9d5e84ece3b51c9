"""Memory of a case: each buffer of a launch as a list of writes, and the numbers that the reference works on.

A KV pool of 6 GB is never made: a :class:`Buffer` has a size and a few :class:`Write`s. The function
:func:`prepare` returns buffers, the plain fields of ``ckpm_problem`` and the targets of its pointers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.launch import arguments
from ckpm.attention.launch.encodings import Bits, Floats, decode, encode, nan_bits
from ckpm.attention.launch.hip_api import Memory
from ckpm.attention.launch.kv_pool import Buffer, KvPool, Write, add_peaks, range_descale, stream
from ckpm.attention.launch.page_tables import PageTable, block_table, page_table, unused_entry
from ckpm.base.errors import ProblemError
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.problems.problem import Strides

POISON = 0xFF  # bytes of an output before the launch: NaN in every format
GAP = 16  # elements between rows of outputs with output_gaps: a multiple of every vector
PADDING = 256  # table entries after the last valid one, as aiter and SGLang allocate
_WIDE = ("dropout_seed", "dropout_offset")  # 64 bits in the ABI


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchInputs:
    """Numbers of a case for the reference: decoded and dequantised, one array for each sequence.

    - q: [sq, nhead_q, hdim_q], k: [sk, nhead_k, hdim_q], v: [sk, nhead_k, hdim_v]
    - bias: [nhead_q, sq, sk] or None
    - slopes: [batch, nhead_q] or None
    - sink_logits: [nhead_q] or None
    """

    problem: SuiteCase
    q: tuple[Floats, ...]
    k: tuple[Floats, ...]
    v: tuple[Floats, ...]
    bias: tuple[Floats, ...] | None = None
    slopes: Floats | None = None
    sink_logits: Floats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A launch of a case. Plans are made of ``posed``: the case with the sizes of its page table, and with strides.

    ``pointers``: field of ckpm_problem -> (buffer, byte offset); ``fields``: the others.
    """

    problem: SuiteCase
    posed: SuiteCase
    arch: str
    buffers: Mapping[str, Buffer]
    pointers: Mapping[str, tuple[str, int]]
    fields: Mapping[str, int | float | str]
    inputs: LaunchInputs
    table: PageTable

    def addresses(self, memory: Mapping[str, Memory]) -> dict[str, int]:
        """The pointers of a launch whose buffers are on the device."""
        return {name: memory[buffer].address + at for name, (buffer, at) in self.pointers.items()}


def prepare(problem: SuiteCase, arch: str = "gfx950") -> Prepared:
    """Buffers, fields and reference inputs of a problem."""
    p = problem
    table = page_table(p)
    q, q_bits, q_descale = _queries(p, arch)
    pool = KvPool(p, arch, table)
    guard = "guard_page" in p.checks
    posed = pose(p, arch, table)
    fields = arguments.prefill_fields(posed)
    _check_fields(p, fields)
    total_q, out_bytes = p.rows_q, arguments.out_bytes(p)
    buffers = {
        "q": Buffer(size=q_bits.nbytes, writes=(Write(0, q_bits),), guard=guard),
        "o": Buffer(size=total_q * int(fields["stride_o"]) * out_bytes, fill=POISON, guard=guard),
        **pool.buffers(guard),
    }
    pointers = {"q": ("q", 0), "o": ("o", 0), **pool.pointers()}

    def add(name: str, data: NDArray[Any], field: str | None = None) -> None:
        buffers[name] = Buffer(size=data.nbytes, writes=(Write(0, data),), guard=guard)
        pointers[field or name] = (name, 0)

    for name, data in _table_arrays(p, table).items():
        add(name, data)
    if p.mode == "group":
        add("seqstart_q", np.cumsum((0, *p.seqlens_q), dtype=np.int32))
    bias, slopes = None, None
    if p.bias == "bias":
        bias, bits = _bias(p, arch)
        add("bias", bits)
    elif p.bias == "alibi":
        slopes, kept = _slopes(p)
        add("bias", kept)
    outputs = {name: size for name, size in _further_outputs(posed).items() if name != p.null_output}
    buffers |= {name: Buffer(size=size, fill=POISON, guard=guard) for name, size in outputs.items()}
    pointers |= {name: (name, 0) for name in outputs}
    sink_logits = None
    if p.sink_logits:
        sink_logits = np.linspace(-1, 2, p.nhead_q)
        add("sink", sink_logits.astype(np.float32))
    if p.scales_q:
        add("q_descale", np.array([q_descale], np.float32))
    inputs = LaunchInputs(
        problem=p, q=q, k=tuple(pool.k), v=tuple(pool.v), bias=bias, slopes=slopes, sink_logits=sink_logits
    )
    return Prepared(
        problem=p, posed=posed, arch=arch, buffers=buffers, pointers=pointers, fields=fields, inputs=inputs, table=table
    )


def _further_outputs(posed: SuiteCase) -> dict[str, int]:
    """Bytes of the outputs besides O: LSE in fp32, dropout's bytes, the workspaces of splits."""
    p = posed
    heads = p.nhead_q * (p.batch if p.mode == "batch" else 1)
    sizes = {"lse": heads * p.stride("lse").nhead * 4} if p.lse else {}
    if p.stores_random:
        sizes["rand_val"] = heads * p.stride("randval").nhead
    return {**sizes, **arguments.workspaces(p)}


def _queries(p: SuiteCase, arch: str) -> tuple[tuple[Floats, ...], Bits, float]:
    """Q of each sequence, its bits in [token, head, dim] and the per-tensor descale (1 without)."""
    low, high = p.q_range
    factor = range_descale(p, p.q_range, 224) if p.scales_q else 1.0
    drawn = [
        stream(p, 1, identity).uniform(low, high, (length, p.nhead_q, p.hdim_q))
        for identity, length in zip(p.ids, p.seqlens_q, strict=True)
    ]
    if p.values == "peaks":
        for part in drawn:
            add_peaks(part)
    bits = [encode(part / factor, p.q_dtype, arch) for part in drawn]
    return tuple(decode(part, p.q_dtype, arch) * factor for part in bits), np.concatenate(bits), factor


def _table_arrays(p: SuiteCase, table: PageTable) -> dict[str, NDArray[np.int32]]:
    """The page table as the kernel reads it: kv_indptr and a list, or a 2-D block table and lengths."""
    if p.kv_table == "vllm":
        return {"kv_page_indices": block_table(p, table), "seqlen_k_ptr": np.array(p.seqlens_k, np.int32)}
    indices = np.concatenate(table.pages).astype(np.int32)
    if p.table_end != "exact":
        indices = np.concatenate((indices, np.full(PADDING, unused_entry(p, table), np.int32)))
    counts = [len(pages) for pages in table.pages]
    arrays = {"kv_indptr": np.cumsum((0, *counts), dtype=np.int32), "kv_page_indices": indices}
    if p.page_size > 1:  # with pages of one token no CK reads it, and the CK of 2025 lacks it
        last = [(length - 1) % p.page_size + 1 if length else 0 for length in p.seqlens_k]
        arrays["kv_last_page_lens"] = np.array(last, np.int32)
    return arrays


def _bias(p: SuiteCase, arch: str) -> tuple[tuple[Floats, ...], Bits]:
    """Elementwise bias in [head, token, key]; keys past a sequence's end are NaN. fp8 kernels take float32."""
    dtype = "fp32" if p.dtype == "fp8bf16" else p.dtype
    parts, rows = [], []
    for identity, sq, sk in zip(p.ids, p.seqlens_q, p.seqlens_k, strict=True):
        drawn = stream(p, 6, identity).uniform(-2, 2, (p.nhead_q, sq, sk))
        if p.bias_values == "minus_inf_rows":
            drawn[:, ::5, :] = -np.inf
            drawn[:, 1::5, sk // 2 :] = -np.inf
        bits = encode(drawn, dtype, arch)
        row = np.full((p.nhead_q, sq, _bias_stride(p)), nan_bits(dtype, arch), bits.dtype)
        row[..., :sk] = bits
        rows.append(row)
        parts.append(decode(bits, dtype, arch))
    return tuple(parts), np.concatenate(rows, axis=0 if p.mode == "batch" else 1)


def _bias_stride(p: SuiteCase) -> int:
    return max(p.seqlens_k) + 3


def _slopes(p: SuiteCase) -> tuple[Floats, NDArray[np.float32]]:
    """ALiBi slopes [batch, head] and the kernel's array: one row for all sequences, or one for each."""
    row = 2.0 ** (-8.0 * (1 + np.arange(p.nhead_q)) / max(p.nhead_q, 8))
    rows = np.stack([row * (1 + index % 3 if p.alibi_per_batch else 1) for index in p.ids]).astype(np.float32)
    return rows.astype(np.float64), rows if p.alibi_per_batch else rows[0]


def pose(case: SuiteCase, arch: str, table: PageTable) -> SuiteCase:
    """The case on an arch with the sizes of its page table, and strides where its tensors have gaps."""
    width = table.width if case.kv_table == "vllm" else 0
    p = dataclasses.replace(case, arch=arch, pool_pages=table.pool_pages, table_width=width)
    gap = GAP if "output_gaps" in p.checks else 0
    steps = {"o": (p.hdim_v + gap, p.nhead_q * (p.hdim_v + gap))}  # of heads, of rows
    steps["lse"] = p.head_rows + gap, 1
    for name, row in (("bias", _bias_stride(p)), ("randval", p.seqlen_k + gap)):
        steps[name] = p.head_rows * row, row
    between = {name: p.seqlen_q * row if name == "o" else p.nhead_q * head for name, (head, row) in steps.items()}
    strides = {
        name: Strides(between[name] if p.mode == "batch" else 0, head, row) for name, (head, row) in steps.items()
    }
    head = 2 if p.storage == "gaps" and p.kv_layout == "linear" else 1
    for tensor, hdim in (("k", p.hdim_q), ("v", p.hdim_v)):
        plain = p.stride(tensor)
        strides[tensor] = Strides(p.page_elements(tensor), head * plain.nhead, head * plain.row)
        row = p.row_elements(tensor)
        if p.heads_first:
            strides[tensor] = Strides(p.page_elements(tensor), p.page_size * row, row)
        if p.storage == "latent":
            strides[tensor] = Strides(p.page_elements(tensor), row, p.nhead_k * row)
        if tensor == "v" and p.vlayout == "col":
            strides[tensor] = Strides(1, hdim * p.pool_pages, p.pool_pages)
    return dataclasses.replace(p, strides=tuple(strides.items()))


def _check_fields(p: SuiteCase, fields: Mapping[str, int | float | str]) -> None:
    for name, value in fields.items():
        if isinstance(value, int) and name not in _WIDE and not -(2**31) <= value < 2**31:
            raise ProblemError(f"{p.name}: {name} {value} does not fit 32 bits. Make the pool smaller.")


def read(buffer: Buffer, offsets: NDArray[np.int64], kind: Any, unwritten: int | None = None) -> NDArray[Any]:
    """Elements of a type at byte offsets of a buffer. ``unwritten`` are the bits of elements that no write sets."""
    writes: Sequence[Write] = sorted(buffer.writes, key=lambda write: write.offset)
    starts = np.array([write.offset for write in writes], np.int64)
    ends = np.array([write.offset + write.data.nbytes for write in writes], np.int64)
    flat = offsets.reshape(-1)
    if not flat.size:
        return np.empty(offsets.shape, kind)
    index = np.searchsorted(starts, flat, side="right") - 1
    written = (index >= 0) & (flat < ends[index])
    if not written.all() and unwritten is None:
        raise ProblemError("a place of the buffer was never written.")
    values = np.full(flat.size, unwritten or 0, kind)
    if not written.any():
        return values.reshape(offsets.shape)
    places = np.flatnonzero(written)
    order = places[np.argsort(index[places], kind="stable")]
    numbers, begins = np.unique(index[order], return_index=True)
    for number, indices in zip(numbers.tolist(), np.split(order, begins[1:]), strict=True):
        data = writes[number].data.reshape(-1).view(kind)
        values[indices] = data[(flat[indices] - starts[number]) // np.dtype(kind).itemsize]
    return values.reshape(offsets.shape)

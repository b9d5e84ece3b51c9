"""Launches for the suites, through the same Plan as calls: upload buffers, launch the kernel, read outputs back.

:func:`check` finds problems that contradict themselves before they reach a device. There they would crash or,
worse, read other data. Examples are page ids outside the pool and buffers smaller than sizes and strides require.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.launch.buffers import POISON, Prepared
from ckpm.attention.launch.c_abi import Launch, Library
from ckpm.attention.launch.device import Device, Fault
from ckpm.attention.launch.encodings import decode
from ckpm.attention.launch.hip_api import Memory
from ckpm.attention.launch.kv_pool import Buffer, Write
from ckpm.attention.launch.plan import LaunchPlan
from ckpm.base.errors import HipError, ProblemError
from ckpm.kernels.abi import Status
from ckpm.matrix.problems.problem import ELEMENT_BYTES

Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]
OUTPUTS = ("o", "lse", "rand_val")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """The end of a launch of a plan. ``outputs`` are the bytes that were read back, by name; empty after a fault.

    ``counters`` are the device's for this launch, empty if it counts nothing. ``seconds`` is the host's time from the
    launch to its end. ``addresses`` are the buffers'.
    """

    launch: Launch
    fault: Fault | None
    seconds: float
    outputs: Mapping[str, Bytes] = field(default_factory=dict)
    counters: Mapping[str, Any] = field(default_factory=dict)
    addresses: Mapping[str, int] = field(default_factory=dict)

    @property
    def ran(self) -> bool:
        return self.launch.status == Status.OK and self.fault is None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOutcome(Launched):
    """The end of the launch of a case of batch prefill."""

    prepared: Prepared

    def o(self) -> Floats:
        """O as [token, head, hdim_v]."""
        p = self.prepared.problem
        return decode(self.o_bits(), p.o_dtype, self.prepared.arch)

    def o_bits(self) -> NDArray[Any]:
        """O's bits as [token, head, hdim_v]."""
        return self._o()[..., : self.prepared.problem.hdim_v]

    def lse(self) -> NDArray[np.float32]:
        """LSE as [head, token]; in batch mode it lies in memory as [batch, head, token]."""
        p, lse = self.prepared.problem, self._lse()
        if p.mode == "batch":
            return lse[..., : max(p.seqlens_q)].transpose(1, 0, 2).reshape(p.nhead_q, -1)
        return lse[:, : sum(p.seqlens_q)]

    def _o(self) -> NDArray[Any]:
        """O as [token, head, hdim_v and the gap after it]."""
        p = self.prepared.problem
        kind = np.uint32 if p.dtype == "fp32" else np.uint16
        return self.outputs["o"].view(kind).reshape(sum(p.seqlens_q), p.nhead_q, self._stride("nhead_stride_o"))

    def _lse(self) -> NDArray[np.float32]:
        """LSE as [head, token and the gap after the last], with a batch before the head in batch mode."""
        p = self.prepared.problem
        leading = (p.batch, p.nhead_q) if p.mode == "batch" else (p.nhead_q,)
        return self.outputs["lse"].view(np.float32).reshape(*leading, self._stride("nhead_stride_lse"))

    def _stride(self, name: str) -> int:
        return int(self.prepared.fields[name])

    def written_gaps(self) -> Mapping[str, int]:
        """The number of elements between an output's rows that the kernel changed, by output."""
        p = self.prepared.problem
        rows = max(p.seqlens_q) if p.mode == "batch" else sum(p.seqlens_q)
        gaps: dict[str, NDArray[Any]] = {"o": self._o()[..., p.hdim_v :]}
        if p.lse:
            gaps["lse"] = self._lse()[..., rows:]
        if "rand_val" in self.outputs:
            behind = [rows[..., keys:].ravel() for rows, keys in zip(self._random_rows(), p.seqlens_k, strict=True)]
            gaps["rand_val"] = np.concatenate(behind)
        counts = {}
        for name, gap in gaps.items():
            flat = np.ascontiguousarray(gap)
            changed = (flat.view(np.uint8).reshape(-1, flat.itemsize) != POISON).any(axis=1)
            counts[name] = int(changed.sum())
        return {name: count for name, count in counts.items() if count}

    def random_values(self) -> tuple[Bytes, ...]:
        """The stored random bytes of each sequence as [head, query, key].

        Tiles that the kernel did not visit contain poison.
        """
        keys = self.prepared.problem.seqlens_k
        return tuple(rows[..., :count] for rows, count in zip(self._random_rows(), keys, strict=True))

    def _random_rows(self) -> tuple[Bytes, ...]:
        """Random bytes of each sequence as [head, query, key and the gap after the last key]."""
        p = self.prepared.problem
        stride = self._stride("stride_randval")
        bits = self.outputs["rand_val"]
        if p.mode == "batch":
            return tuple(bits.reshape(p.batch, p.nhead_q, -1, stride))
        rows = np.cumsum((0, *p.seqlens_q))
        tokens = bits.reshape(p.nhead_q, -1, stride)
        return tuple(tokens[:, rows[i] : rows[i + 1]] for i in range(len(p.seqlens_k)))


def launch_plan(
    plan: LaunchPlan,
    buffers: Mapping[str, Buffer],
    pointers: Mapping[str, tuple[str, int]] | None,
    outputs: Iterable[str],
) -> Launched:
    """Upload the buffers, launch, and read ``outputs`` back. The plan's workspaces are freed at the end.

    ``pointers`` maps an argument's name to a buffer and an offset. With None each buffer is passed under its own name.
    After a fault the device has been recovered, or is lost for this process.
    """
    device = plan.device
    with contextlib.closing(plan), upload(device, buffers) as memory:
        launch_pointers = {name: memory[name].address for name in memory}
        if pointers is not None:
            launch_pointers = {name: memory[buffer].address + at for name, (buffer, at) in pointers.items()}
        device.reset_counters()
        started = time.perf_counter()
        launch = plan.launch(launch_pointers)
        fault = device.fault()
        if fault is None:
            device.hip.synchronize()
        seconds = time.perf_counter() - started
        counters = device.counters()
        read: dict[str, Bytes] = {}
        if fault is None:
            read = {name: device.hip.read(memory[name]) for name in outputs if name in memory}
        else:
            device.recover()
        addresses = {name: part.address for name, part in memory.items()}
    return Launched(launch=launch, fault=fault, seconds=seconds, outputs=read, counters=counters, addresses=addresses)


def run_problem(device: Device, library: Library, prepared: Prepared, kernel: str | None = None) -> LaunchOutcome:
    """Launch the kernel that dispatch chooses, or the named one, and read O, LSE and random values back.

    A refusal or a fault is returned, not raised.
    """
    check(prepared)
    ended = launch_plan(plan_of(device, library, prepared, kernel), prepared.buffers, prepared.pointers, OUTPUTS)
    return LaunchOutcome(
        prepared=prepared,
        **{launched_field.name: getattr(ended, launched_field.name) for launched_field in fields(Launched)},
    )


def plan_of(device: Device, library: Library, prepared: Prepared, kernel: str | None = None) -> LaunchPlan:
    """The plan of a case, with the named kernel or dispatch's choice."""
    kernels = () if kernel is None else (kernel,)
    return LaunchPlan(prepared.posed, device, library, kernels=kernels, named=kernel is not None)


def host_buffers(arrays: Mapping[str, NDArray[Any]], outputs: Mapping[str, int]) -> dict[str, Buffer]:
    """A buffer for each array, and a poisoned buffer for each output; ``outputs`` are their bytes."""
    buffers = {name: Buffer(size=array.nbytes, writes=(Write(0, array),)) for name, array in arrays.items()}
    return buffers | {name: Buffer(size=size, fill=POISON) for name, size in outputs.items()}


@contextlib.contextmanager
def upload(device: Device, buffers: Mapping[str, Buffer]) -> Iterator[dict[str, Memory]]:
    """Allocate and write the buffers. Yield them by name, and free them at the end."""
    memory: dict[str, Memory] = {}
    allocated: list[Memory] = []
    try:
        for name, buffer in buffers.items():
            if buffer.sparse:
                memory[name] = _map_writes(device, buffer, allocated)
                continue
            memory[name] = _allocate(device, buffer)
            allocated.append(memory[name])
            if buffer.fill is not None:
                device.hip.fill(memory[name], buffer.fill)
            for write in buffer.writes:
                device.hip.write(memory[name], write.data, write.offset)
        yield memory
    finally:
        for part in allocated:
            with contextlib.suppress(HipError):  # of a lost device: the first error is the one to report
                device.hip.free(part)


def _allocate(device: Device, buffer: Buffer) -> Memory:
    if buffer.placement == "default":
        return device.hip.malloc(buffer.size)
    with device.place_memory(buffer.placement):
        return device.hip.malloc(buffer.size)


def _map_writes(device: Device, buffer: Buffer, allocated: list[Memory]) -> Memory:
    """The range of a sparse buffer. Each write gets its own allocation inside, appended to ``allocated``."""
    whole = _allocate(device, buffer)
    device.hip.free(whole)  # its addresses are free from here on
    for write in buffer.writes:
        with device.place_memory("fixed", at=whole.address + write.offset):
            allocated.append(device.hip.malloc(write.data.nbytes))
        device.hip.write(allocated[-1], write.data)
    return whole


def check(prepared: Prepared) -> None:
    """Refuse a launch whose numbers contradict one another.

    Page ids, and sizes by strides, are checked only in cases that must run (``expect`` is ok). Other cases are wrong on
    purpose.
    """
    for name, (buffer, at) in prepared.pointers.items():
        if buffer not in prepared.buffers:
            raise _contradiction(prepared, f"{name} points into '{buffer}', which is not a buffer")
        if not 0 <= at <= prepared.buffers[buffer].size:
            raise _contradiction(prepared, f"{name} points {at} bytes into a buffer of {prepared.buffers[buffer].size}")
    for name, buffer_ in prepared.buffers.items():
        for write in buffer_.writes:
            if write.offset < 0 or write.offset + write.data.nbytes > buffer_.size:
                end = write.offset + write.data.nbytes
                raise _contradiction(prepared, f"a write of '{name}' ends at byte {end} of {buffer_.size}")
    if prepared.problem.expect == "ok":
        _check_page_ids(prepared)
        _check_sizes(prepared)


def _check_page_ids(prepared: Prepared) -> None:
    """Check that every entry in use names a page of the pool. Padding entries may be anything."""
    pages = int(prepared.fields["num_total_pages"])
    for sequence, entries in enumerate(_entries(prepared)):
        wrong = entries[(entries < 0) | (entries >= pages)]
        if wrong.size:
            raise _contradiction(
                prepared, f"sequence {sequence} names page {wrong[0]}, but the pool has pages 0 to {pages - 1}"
            )


def _entries(prepared: Prepared) -> Iterator[NDArray[np.int32]]:
    """The used page-table entries of each sequence, from the bytes that are uploaded."""
    p = prepared.problem
    table = _read_words(prepared, "kv_page_indices")
    if p.kv_table == "vllm":
        rows = table.reshape(p.batch, -1)
        lengths = _read_words(prepared, "seqlen_k_ptr")
        for row, length in zip(rows, lengths, strict=True):
            count = -(-int(length) // p.page_size)
            if length < 0 or count > row.size:
                raise _contradiction(
                    prepared, f"a length of {length} needs {count} entries, a table row has {row.size}"
                )
            yield row[:count]
        return
    ends = _read_words(prepared, "kv_indptr")
    if ends.size != p.batch + 1 or ends[0] != 0 or (np.diff(ends) < 0).any() or ends[-1] > table.size:
        raise _contradiction(
            prepared, f"kv_indptr {ends.tolist()[:8]} doesn't ascend from 0 to at most {table.size} in {p.batch} steps"
        )
    if p.page_size > 1:
        _check_last_pages(prepared, np.diff(ends))
    for begin, end in itertools.pairwise(ends):
        yield table[begin:end]


def _check_last_pages(prepared: Prepared, counts: NDArray[np.int32]) -> None:
    """Check that kv_last_page_lens and the number of pages give each sequence's length."""
    p, last = prepared.problem, _read_words(prepared, "kv_last_page_lens")
    if last.size != p.batch:
        raise _contradiction(prepared, f"kv_last_page_lens has {last.size} entries for {p.batch} sequences")
    lengths = np.where(counts > 0, (counts - 1) * p.page_size + last, 0)
    for sequence, (length, count) in enumerate(zip(lengths.tolist(), counts.tolist(), strict=True)):
        if length != p.seqlens_k[sequence]:
            raise _contradiction(
                prepared,
                f"sequence {sequence} has {p.seqlens_k[sequence]} keys, but {count} pages of {p.page_size} tokens with "
                f"{last[sequence]} in the last one",
            )


def _read_words(prepared: Prepared, name: str) -> NDArray[np.int32]:
    writes = prepared.buffers[name].writes
    if not writes:
        return np.empty(0, np.int32)
    return np.ascontiguousarray(writes[0].data).reshape(-1).view(np.int32)


def _check_sizes(prepared: Prepared) -> None:
    """Check that the last element of each tensor, by sizes and strides, lies in its buffer."""
    p, f = prepared.problem, prepared.fields
    tokens, keys = sum(p.seqlens_q), max(p.seqlens_k)
    _require(prepared, "q", _rows_end(prepared, "q", p.hdim_q) * ELEMENT_BYTES[p.q_dtype])
    _require(prepared, "o", _rows_end(prepared, "o", p.hdim_v) * ELEMENT_BYTES[p.o_dtype])
    for name, hdim in (("k", p.hdim_q), ("v", p.hdim_v)):
        _require(prepared, name, _pool_end(prepared, name, hdim) * p.element_bytes)
    if p.lse:
        _require(prepared, "lse", _rows_end(prepared, "lse", 1) * 4)
    if p.bias == "bias":
        _require(prepared, "bias", _rows_end(prepared, "bias", keys) * (4 if p.dtype == "fp8bf16" else p.element_bytes))
    elif p.bias == "alibi":
        _require(prepared, "bias", ((p.batch - 1) * int(f["stride_bias"]) + p.nhead_q) * 4)
    if p.p_drop and p.store_randval:
        _require(prepared, "rand_val", _rows_end(prepared, "randval", keys))
    scales = (*(["q_descale"] if p.scales_q else []), *(["k_descale", "v_descale"] if p.qscale != "no" else []))
    for name in scales:
        of_kv = name != "q_descale"
        pages = int(f["num_total_pages"]) if p.qscale == "kv_blockscale" and of_kv else 1
        heads = p.nhead_k if p.qscale in ("kv_blockscale", "perhead") and of_kv else 1
        steps = pages - 1, heads - 1
        strides = (int(f.get(f"{what}_stride_kv_descale", 0)) for what in ("block", "nhead"))
        last = sum(step * stride for step, stride in zip(steps, strides, strict=True))
        _require(prepared, name, (last + 1) * 4)
    if p.mode == "group":
        starts = _read_words(prepared, "seqstart_q")
        if starts.size != p.batch + 1 or int(starts[-1]) != tokens or (np.diff(starts) < 0).any():
            raise _contradiction(prepared, f"seqstart_q {starts.tolist()[:8]} disagrees with {tokens} query tokens")


def _rows_end(prepared: Prepared, word: str, length: int) -> int:
    """The element after the last row of a tensor with ``length`` elements for each head and query token."""
    p, f = prepared.problem, prepared.fields
    batches, rows = (p.batch, max(p.seqlens_q)) if p.mode == "batch" else (1, sum(p.seqlens_q))
    if not rows:
        return 0
    steps = (f.get(f"batch_stride_{word}", 0), f[f"nhead_stride_{word}"], f.get(f"stride_{word}", 1))
    counts = (batches - 1, p.nhead_q - 1, rows - 1)
    return sum(int(step) * count for step, count in zip(steps, counts, strict=True)) + length


def _pool_end(prepared: Prepared, tensor: str, hdim: int) -> int:
    """The element after the last page of K or V."""
    p, f = prepared.problem, prepared.fields
    pages, stride, heads = (int(f[name]) for name in ("num_total_pages", f"stride_{tensor}", f"nhead_stride_{tensor}"))
    if tensor == "v" and p.vlayout == "col":
        return (p.nhead_k - 1) * heads + (hdim - 1) * stride + pages
    first = (pages - 1) * int(f[f"batch_stride_{tensor}"])
    if p.kv_layout == "vectorized":
        return first + p.page_size * p.nhead_k * hdim
    return first + (p.page_size - 1) * stride + (p.nhead_k - 1) * heads + hdim


def _require(prepared: Prepared, pointer: str, end: int) -> None:
    buffer, at = prepared.pointers[pointer]
    size = prepared.buffers[buffer].size
    if at + end > size:
        raise _contradiction(
            prepared, f"{pointer} ends at byte {at + end} by its sizes and strides, its buffer has {size}"
        )


def _contradiction(prepared: Prepared, text: str) -> ProblemError:
    return ProblemError(f"{prepared.problem.name}: {text}.")

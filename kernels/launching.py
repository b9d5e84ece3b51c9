"""A prepared problem on a device: buffers uploaded, the kernel launched, outputs read back.

:func:`check` finds problems that contradict themselves before they reach a device, where they would crash or, worse,
read other data: page ids outside the pool, buffers smaller than their sizes and strides say.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.buffers import Prepared
from kernels.device import Device, Fault
from kernels.encodings import decode
from kernels.harness import Launch, Library, Problem, Status
from kernels.hip_api import HipError, Memory
from kernels.kv_pool import Buffer
from matrix.errors import ProblemError

Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]
OUTPUTS = ("o", "lse", "rand_val")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a launch ended. ``outputs``: bytes of each output buffer, empty if the launch faulted or was refused.

    ``counters`` are the device's for this launch, empty if it counts nothing; ``seconds`` of the launch alone.
    """

    prepared: Prepared
    launch: Launch
    fault: Fault | None
    seconds: float
    outputs: Mapping[str, Bytes] = field(default_factory=dict)
    counters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ran(self) -> bool:
        return self.launch.status == Status.OK and self.fault is None

    def o(self) -> Floats:
        """O as [token, head, hdim_v]."""
        p = self.prepared.problem
        return decode(self.o_bits(), "bf16" if p.dtype == "fp8bf16" else p.dtype, self.prepared.arch)

    def o_bits(self) -> NDArray[Any]:
        """O's bits as [token, head, hdim_v]."""
        p = self.prepared.problem
        kind = np.uint32 if p.dtype == "fp32" else np.uint16
        return self.outputs["o"].view(kind).reshape(sum(p.seqlens_q), p.nhead_q, p.hdim_v)

    def lse(self) -> NDArray[np.float32]:
        """LSE as [head, token]; in batch mode it lies in memory as [batch, head, token]."""
        p = self.prepared.problem
        found = self.outputs["lse"].view(np.float32)
        if p.mode == "batch":
            return found.reshape(p.batch, p.nhead_q, -1).transpose(1, 0, 2).reshape(p.nhead_q, -1)
        return found.reshape(p.nhead_q, -1)

    def random_values(self) -> tuple[Bytes, ...]:
        """The stored random bytes of each sequence as [head, query, key]. Tiles that were not visited hold poison."""
        p = self.prepared.problem
        stride = int(self.prepared.fields["stride_randval"])
        found = self.outputs["rand_val"]
        if p.mode == "batch":
            whole = found.reshape(p.batch, p.nhead_q, -1, stride)
            return tuple(whole[index][..., :keys] for index, keys in enumerate(p.seqlens_k))
        rows = np.cumsum((0, *p.seqlens_q))
        tokens = found.reshape(p.nhead_q, -1, stride)
        return tuple(tokens[:, rows[i] : rows[i + 1], :keys] for i, keys in enumerate(p.seqlens_k))


def run(device: Device, library: Library, prepared: Prepared, kernel: str | None = None) -> Outcome:
    """Launch the kernel that dispatch chooses, or the named one, and read O, LSE and random values back.

    A refusal or a fault is an outcome. After a fault the device has been recovered if it can be.

    Raises:
        ProblemError: sizes, strides, buffers or page ids contradict one another.
        HipError: memory ran out, or a call of the runtime failed for another reason than the launch.
        UsageError: the device can't place buffers where the problem wants them.
    """
    check(prepared)
    with uploaded(device, prepared) as memory:
        pointers = {name: memory[buffer].address + at for name, (buffer, at) in prepared.pointers.items()}
        problem = Problem(**{**prepared.fields, **pointers})
        device.reset_counters()
        started = time.perf_counter()
        launch = library.launch(problem, kernel)
        fault = device.fault()
        if fault is None:
            device.hip.synchronize()
        seconds = time.perf_counter() - started
        counters = device.counters()
        outputs: dict[str, Bytes] = {}
        if fault is None:
            outputs = {name: device.hip.read(memory[name]) for name in OUTPUTS if name in memory}
        else:
            device.recover()
    return Outcome(prepared=prepared, launch=launch, fault=fault, seconds=seconds, outputs=outputs, counters=counters)


@contextlib.contextmanager
def uploaded(device: Device, prepared: Prepared) -> Iterator[dict[str, Memory]]:
    """The problem's buffers on the device, by name; freed at the end whatever happened."""
    memory: dict[str, Memory] = {}
    try:
        for name, buffer in prepared.buffers.items():
            memory[name] = _allocate(device, buffer)
            if buffer.fill is not None:
                device.hip.fill(memory[name], buffer.fill)
            for write in buffer.writes:
                device.hip.write(memory[name], write.data, write.offset)
        yield memory
    finally:
        for part in memory.values():
            with contextlib.suppress(HipError):  # of a lost device; what went wrong first is told
                device.hip.free(part)


def _allocate(device: Device, buffer: Buffer) -> Memory:
    if buffer.placement == "default":
        return device.hip.malloc(buffer.size)
    with device.placed(buffer.placement):
        return device.hip.malloc(buffer.size)


def check(prepared: Prepared) -> None:
    """Refuse a launch whose numbers contradict one another.

    Raises:
        ProblemError: what, and both numbers.
    """
    for name, (buffer, at) in prepared.pointers.items():
        if buffer not in prepared.buffers:
            raise _contradiction(prepared, f"{name} points into '{buffer}', which is no buffer")
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
    """Every entry that a sequence uses must name a page of the pool. Padding entries may hold anything."""
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
    table = _words(prepared, "kv_page_indices")
    if p.kv_table == "vllm":
        rows = table.reshape(p.batch, -1)
        lengths = _words(prepared, "seqlen_k_ptr")
        for row, length in zip(rows, lengths, strict=True):
            count = -(-int(length) // p.page_size)
            if length < 0 or count > row.size:
                raise _contradiction(
                    prepared, f"a length of {length} needs {count} entries, a table row has {row.size}"
                )
            yield row[:count]
        return
    ends = _words(prepared, "kv_indptr")
    if ends.size != p.batch + 1 or ends[0] != 0 or (np.diff(ends) < 0).any() or ends[-1] > table.size:
        raise _contradiction(
            prepared, f"kv_indptr {ends.tolist()[:8]} doesn't ascend from 0 to at most {table.size} in {p.batch} steps"
        )
    for begin, end in itertools.pairwise(ends):
        yield table[begin:end]


def _words(prepared: Prepared, name: str) -> NDArray[np.int32]:
    writes = prepared.buffers[name].writes
    if not writes:
        return np.empty(0, np.int32)
    return np.ascontiguousarray(writes[0].data).reshape(-1).view(np.int32)


def _check_sizes(prepared: Prepared) -> None:
    """The last element that sizes and strides lead to must lie in its buffer."""
    p, f = prepared.problem, prepared.fields
    element, tokens = p.element_bytes, sum(p.seqlens_q)
    out = 4 if p.dtype == "fp32" else 2
    ends = {"q": (tokens, "q", p.nhead_q, p.hdim_q, element), "o": (tokens, "o", p.nhead_q, p.hdim_v, out)}
    for name, (count, word, heads, hdim, size) in ends.items():
        last = (count - 1) * int(f[f"stride_{word}"]) + (heads - 1) * int(f[f"nhead_stride_{word}"]) + hdim
        _require(prepared, name, last * size if count else 0)
    for name, hdim in (("k", p.hdim_q), ("v", p.hdim_v)):
        if name == "v" and p.vlayout == "col":
            continue
        last = (int(f["num_total_pages"]) - 1) * int(f[f"batch_stride_{name}"])
        if p.kv_layout == "vectorized":
            last += p.page_size * p.nhead_k * hdim
        else:
            last += (
                (p.page_size - 1) * int(f[f"stride_{name}"]) + (p.nhead_k - 1) * int(f[f"nhead_stride_{name}"]) + hdim
            )
        _require(prepared, name, last * element)
    if p.lse:
        _require(prepared, "lse", p.nhead_q * tokens * 4)
    if p.mode == "group":
        starts = _words(prepared, "seqstart_q")
        if starts.size != p.batch + 1 or int(starts[-1]) != tokens:
            raise _contradiction(prepared, f"seqstart_q {starts.tolist()[:8]} disagrees with {tokens} query tokens")


def _require(prepared: Prepared, pointer: str, end: int) -> None:
    buffer, at = prepared.pointers[pointer]
    size = prepared.buffers[buffer].size
    if at + end > size:
        raise _contradiction(
            prepared, f"{pointer} ends at byte {at + end} by its sizes and strides, its buffer has {size}"
        )


def _contradiction(prepared: Prepared, text: str) -> ProblemError:
    return ProblemError(f"{prepared.problem.name}: {text}.")

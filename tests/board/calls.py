"""Calls of fmha by ROCm's runtime, or what is in its place: kept plans, tensors of PyTorch in place, a captured graph.

A test runs this in a stand-in's environment. Without PyTorch's GPUs its tensors are stand-ins in the device's memory.
"""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from ckpm import Pages, fmha
from ckpm.attention import call, reference
from ckpm.attention.arrays.posing import pose
from ckpm.attention.launch.buffers import PADDING
from ckpm.attention.launch.encodings import decode, encode
from ckpm_emulator import device as emulated
from tests.unit.attention import test_pytorch

emulated.EmulatedGpu = None  # type: ignore[assignment, misc]  # the default device must not be it
from examples import paged_prefill as host  # noqa: E402

DISPATCHER = call.default()
HIP, RUNTIME = DISPATCHER.device.hip, ctypes.CDLL(None)
STREAM = ctypes.c_void_p()
OPTIONS: dict[str, Any] = {"dtype": "bf16", "mask": "bottom_right", "max_seqlen_q": 40}


class Tensor(test_pytorch.Tensor):
    """A tensor in the device's memory, with room for kernels that read a list of pages ahead."""

    def __init__(self, array: NDArray[Any], *_: str) -> None:
        size = array.nbytes + PADDING * array.itemsize
        memory = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(HIP.malloc(size).address))
        super().__init__(memory[: array.nbytes].view(array.dtype).reshape(array.shape), "cuda")
        self.array[:] = array

    def new_empty(self, shape: tuple[int, ...], dtype: Any) -> Tensor:
        return Tensor(np.empty(shape, dtype))

    def stride(self) -> tuple[int, ...]:
        return tuple(step // self.array.itemsize for step in self.array.strides)

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)


def run(name: str, *arguments: Any) -> None:
    assert (status := getattr(RUNTIME, name)(*arguments)) == 0, f"{name}: {HIP.error_text(status)}"


def check_kept_plan() -> None:
    """A second call of host arrays has the first one's plan and bits."""
    lengths = np.array([0, 40, 60], np.int32)
    again = fmha(host.q, host.k, host.v, dtype="bf16", cu_seqlens_q=lengths, pages=host.pages, mask="bottom_right")
    assert DISPATCHER.device.kind == "hip"
    assert DISPATCHER.plan(again.problem) is DISPATCHER.plan(host.done.problem)
    assert (again.o == host.done.o).all()


def check_tensors_and_graph() -> None:
    """Calls of tensors are posed once; a captured one runs when it is replayed, on the numbers that are there then."""
    run("hipStreamCreate", ctypes.byref(STREAM))
    numbers = {name: np.dtype(name) for name in ("uint16", "float32")}
    sys.modules["torch"] = SimpleNamespace(  # type: ignore[assignment]
        Tensor=Tensor, _C=SimpleNamespace(_cuda_getCurrentRawStream=lambda device: STREAM.value), **numbers,
        empty_like=lambda tensor: tensor.new_empty(tensor.shape, tensor.dtype),
    )  # fmt: skip
    q, k, v = (Tensor(encode(part, "bf16", "")) for part in (host.q, host.k, host.v))
    indptr = Tensor(np.array([0, 70, 95], np.int32))
    pages = Pages(indices=Tensor(host.order), indptr=indptr, longest=70)
    lengths, o = Tensor(np.array([0, 40, 60], np.int32)), Tensor(np.zeros(host.q.shape, np.uint16))
    with mock.patch("ckpm.attention.call.pose", wraps=pose) as posed:
        for out in (None, o):
            done = fmha(q, k, v, cu_seqlens_q=lengths, pages=pages, out=out, **OPTIONS)
            run("hipStreamSynchronize", STREAM)
            assert (decode(done.o.array, "bf16", "") == host.done.o).all()
        o.array[:] = 0
        graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
        run("hipStreamBeginCapture", STREAM, 0)
        fmha(q, k, v, cu_seqlens_q=lengths, pages=pages, out=o, **OPTIONS)
        run("hipStreamEndCapture", STREAM, ctypes.byref(graph))
        run("hipGraphInstantiate", ctypes.byref(executable), graph, None, None, ctypes.c_size_t(0))
        assert not o.array.any()
        assert posed.call_count == 1
    for factor in (1.0, -2.0):
        q.array[:] = encode(host.q * factor, "bf16", "")
        run("hipGraphLaunch", executable, STREAM)
        run("hipStreamSynchronize", STREAM)
        queries = decode(q.array, "bf16", "")
        want, _ = reference.attention(host.done.problem, [queries[:40], queries[40:]], host.keys, host.values)
        verdict = reference.agreement(decode(o.array, "bf16", ""), want, "bf16")
        assert verdict.passed, str(verdict)


check_kept_plan()
check_tensors_and_graph()
print("plans are kept, and a captured call is replayed")

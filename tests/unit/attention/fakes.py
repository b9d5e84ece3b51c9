"""A device without hardware and libraries without code: what a plan does is seen by what they are called with."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ckpm.attention.arrays.tensors import OnDevice
from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.kernel_sets import kernel_set
from ckpm.attention.launch.c_abi import Library
from ckpm.attention.launch.device import Device, Fault
from ckpm.attention.launch.hip_api import Memory
from ckpm.attention.registry import Instance, Registry
from ckpm.kernels.abi import CheckedArguments, LaunchArguments, Status
from ckpm.kernels.families.libraries import library_with
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.problems.problem import Problem

ARCH = "gfx950"
Answer = Callable[[Any], int]


def make_writer(**arrays: np.ndarray[Any, Any]) -> Answer:
    """A kernel that writes these at a launch's pointers of their names."""

    def answer(arguments: Any) -> int:
        for name, array in arrays.items():
            ctypes.memmove(getattr(arguments, name), array.ctypes.data, array.nbytes)
        return 0

    return answer


def floats_at(address: int, count: int) -> list[float]:
    return list(np.frombuffer(ctypes.string_at(address, 4 * count), np.float32))


class FakeHip:
    """Memory is an array of the host's; addresses are real, so that what was written can be read back."""

    def __init__(self) -> None:
        self.gpu = 0
        self.memory: dict[int, np.ndarray[Any, Any]] = {}
        self.freed: list[int] = []

    def current_device(self) -> int:
        return self.gpu

    def malloc(self, size: int) -> Memory:
        block = np.zeros(max(size, 1), np.uint8)
        self.memory[block.ctypes.data] = block
        return Memory(block.ctypes.data, size)

    def free(self, memory: Memory) -> None:
        self.freed.append(memory.address)

    def write(self, memory: Memory, data: np.ndarray[Any, Any], offset: int = 0) -> None:
        whole = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        self.memory[memory.address][offset : offset + whole.size] = whole

    def fill(self, memory: Memory, byte: int) -> None:
        self.memory[memory.address][:] = byte

    def clear(self, memory: Memory, stream: int = 0) -> None:
        self.fill(memory, 0)

    def read(self, memory: Memory, kind: Any = np.uint8, shape: Any = None) -> np.ndarray[Any, Any]:
        data: np.ndarray[Any, Any] = self.memory[memory.address][: memory.size].view(kind)
        return data.copy() if shape is None else data[: int(np.prod(shape))].reshape(shape).copy()

    def synchronize(self) -> None:
        pass


class FakeDevice(Device):
    compute_units = 256

    def __init__(self, kind: str = "emulator", answer: Answer = lambda arguments: Status.OK) -> None:
        self.kind, self.arch, self.hip = kind, ARCH, FakeHip()  # type: ignore[assignment]
        self.answer, self.loaded, self.launched, self.names = answer, list[Path](), list[Any](), list[str | None]()
        self.chosen: tuple[str, ...] = ()
        self.failure: Fault | None = None

    def has(self, feature: str) -> bool:
        return False

    def load(self, path: Path, arguments: type[CheckedArguments] = LaunchArguments, sha256: str = "") -> Library:
        self.loaded.append(path)
        family = next(
            name
            for name in ("bwd_dq_dk_dv", "batch_prefill", "fwd_appendkv", "fwd_pagedkv", "fwd_splitkv", "fwd")
            if name in path.parts
        )
        calls = {"launch": self._launch(arguments), "selected_kernel": self._selected_kernel}
        return Library(
            path=path, family=family, dialect="", kernels=(), arguments=arguments, abi=ctypes.CDLL(None), calls=calls
        )

    def _launch(self, arguments: type[CheckedArguments]) -> Callable[..., int]:
        def launch(pointer: Any, *rest: Any) -> int:
            copy = arguments.from_buffer_copy(pointer._obj)
            self.launched.append(copy)
            self.names.append(rest[0].decode() if arguments.BY_NAME and rest[0] else None)
            rest[-3]._obj.value = 1.5 * (copy.repeat > 0)
            rest[-2].value = b"said by the library"
            return self.answer(copy)

        return launch

    def _selected_kernel(self, stage: int = 0) -> bytes | None:
        return self.chosen[stage].encode() if stage < len(self.chosen) else None

    def configure(self, **options: Any) -> None:
        raise AssertionError("configure() must not be called")

    def place_memory(self, placement: str, at: int = 0) -> AbstractContextManager[None]:
        @contextmanager
        def do_nothing() -> Iterator[None]:
            yield

        return do_nothing()

    def fault(self) -> Fault | None:
        return self.failure

    def recover(self) -> None:
        self.failure = None


def built(family: str, upstream: str = "aiter", **fields: Any) -> tuple[Instance, ...]:
    """Kernels of the matrix as if they were in a library of the family's."""
    path = Path("/nowhere", upstream, library_with(family), "libckpm.so")
    return tuple(replace(kernel, library=path) for kernel in kernel_set(family, ARCH, upstream=upstream, **fields))


def prefill(**fields: Any) -> Registry:
    """Batch prefill's bf16 kernels of head dim 128 in group mode, of pages of one token."""
    return Registry(
        built("batch_prefill", **{"dtype": "bf16", "hdim_q": 128, "mode": "group", "vlayout": "row", **fields})
    )


def fp8_prefill() -> Registry:
    """Batch prefill's fp8 kernels of head dim 128."""
    return Registry(built("batch_prefill", "ckpm", dtype="fp8bf16", hdim_q=128))


def make_dispatcher(
    registry: Registry, device: FakeDevice | None = None, **options: Any
) -> tuple[Dispatcher, FakeDevice]:
    device = device or FakeDevice()
    return Dispatcher(registry, device, **options), device


PREFILL = Problem(
    family="batch_prefill", mode="group", batch=2, seqlen_q=40, total_q=60, seqlen_k=70, nhead_q=4, nhead_k=2,
    page_size=1, pool_pages=100,
)  # fmt: skip
WRONG: tuple[Any, ...] = (  # arguments of many types
    *(None, 5, -1, 2**64, 2.5, float("nan"), "x", b"x", (), (1,), (1, 2, 3, 4), (1.5, "x"), [], [1], {}, object()),
    *(np.int32(3), np.zeros(2), np.array("x"), print, OnDevice(address=4096, shape=(2,), dtype="int32")),
)
POINTERS = dict.fromkeys(("q", "k", "v", "o", "seqstart_q", "kv_indptr", "kv_page_indices"), 4096)


def make_case(**fields: Any) -> SuiteCase:
    """A case of one sequence with the plain values of all other fields."""
    return SuiteCase(**{"name": "s/x", "suite": "dispatch", "tier": "smoke", "group": "x", **fields})

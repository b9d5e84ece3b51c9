"""A plan: what a problem's launch consists of, made once and run many times.

One stage for fwd, paged, append-KV and batch prefill; two for split-KV; three for backward. A library launches all
stages of a call itself: the plan owns the workspaces between them and knows which kernels run.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ckpm.attention.errors import LaunchError, NullPointerError, OtherKernelError
from ckpm.attention.launch.c_abi import CheckedArguments, Launch, Library, Status
from ckpm.attention.launch.device import Device
from ckpm.attention.launch.hip_api import Memory
from ckpm.attention.problems.problem import Problem
from ckpm.attention.registry import Instance
from ckpm.base.errors import HipError


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How launches are timed. ``repeats`` 0: launched once, untimed.

    ``warmups`` launches come before the timed ones. ``cold_bytes``: before each timed launch so many bytes are written,
    which leaves nothing of its inputs in the caches; each launch is then timed alone.
    """

    warmups: int = 0
    repeats: int = 0
    cold_bytes: int = 0


UNTIMED = Timing()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A launch that ended well. ``milliseconds`` are one mean, or one for each cold launch; empty if untimed."""

    kernels: tuple[str, ...]
    milliseconds: tuple[float, ...] = ()

    @property
    def median(self) -> float:
        """Of the times in milliseconds. Raises ValueError: it was untimed."""
        if not self.milliseconds:
            raise ValueError("the launch was not timed")
        return float(np.median(self.milliseconds))


@dataclass(slots=True)
class _Workspace:
    """Memory of one stream, and who may use it."""

    memory: Mapping[str, Memory]
    lock: threading.Lock = field(default_factory=threading.Lock)


class Plan:
    """``stages`` are the instances that were chosen, one a stage; ``named``: the library runs just these.

    ``workspaces`` are bytes by pointer. Each stream has its own, kept until :meth:`close`. Those of ``cleared`` hold
    zeros before each launch.
    """

    def __init__(
        self,
        *,
        problem: Problem,
        device: Device,
        library: Library,
        stages: tuple[Instance, ...],
        named: bool,
        fields: Mapping[str, Any],
        inputs: tuple[str, ...],
        outputs: Mapping[str, int],
        workspaces: Mapping[str, int],
        cleared: tuple[str, ...] = (),
    ) -> None:
        self.problem, self.device, self.library = problem, device, library
        self.stages, self.named = stages, named
        self.inputs, self.outputs, self.workspaces = inputs, outputs, workspaces
        self._cleared = cleared
        self._needed = frozenset((*inputs, *outputs))
        self._template = library.arguments(**fields)
        self._kind = type(self._template)
        self._places = {name: getattr(self._kind, name).offset for name in (each[0] for each in self._kind._fields_)}
        self._kernel = stages[0].name if named and library.arguments.BY_NAME else None
        self._by_stream: dict[int, _Workspace] = {}
        self._lock = threading.Lock()

    def arguments(self, pointers: Mapping[str, int], stream: int = 0) -> CheckedArguments:
        """The library's struct of one launch. ``pointers`` are device addresses by the C ABI's names.

        Raises:
            NullPointerError: one that the problem needs is missing or 0. TypeError: one that the C ABI doesn't have.
        """
        for name in self._needed:
            if not pointers.get(name):
                raise NullPointerError(f"{name} is null, and {self.problem.family} needs it for this problem.")
        filled = self._kind.from_buffer_copy(self._template)
        start = ctypes.addressof(filled)
        for name, address in pointers.items():
            if name not in self._places:
                raise TypeError(f"{self._kind.START}_problem has no field '{name}'")
            ctypes.c_void_p.from_address(start + self._places[name]).value = address
        ctypes.c_void_p.from_address(start + self._places["stream"]).value = stream
        return filled

    def run(self, pointers: Mapping[str, int], *, stream: int = 0, timing: Timing = UNTIMED) -> Ran:
        """Launch with device addresses; returns when the launch is queued, after it if it is timed.

        Raises:
            NullPointerError: see :meth:`arguments`. HipError: no memory for the workspaces.
            LaunchError: the library refused it, or the device faulted. OtherKernelError: another kernel ran.
        """
        with self._workspace(stream) as own:
            given = {**pointers, **{name: part.address for name, part in own.items()}}
            self._clear(own, stream)
            if not timing.cold_bytes:
                launch = self._launch(given, stream, timing.warmups, timing.repeats)
                if timing.repeats and self._cleared:  # what was added up is the sum of all launches
                    self._clear(own, stream)
                    self._launch(given, stream, 0, 0)
                return Ran(kernels=launch.kernels, milliseconds=(launch.milliseconds,) if timing.repeats else ())
            flushed = self.device.hip.malloc(timing.cold_bytes)
            try:
                if timing.warmups:
                    self._launch(given, stream, timing.warmups - 1, 1)
                launches = []
                for byte in range(max(timing.repeats, 1)):
                    self.device.hip.fill(flushed, byte % 256)
                    self._clear(own, stream)
                    launches.append(self._launch(given, stream, 0, 1))
            finally:
                self.device.hip.free(flushed)
            return Ran(kernels=launches[0].kernels, milliseconds=tuple(one.milliseconds for one in launches))

    def _clear(self, own: Mapping[str, Memory], stream: int) -> None:
        for name in self._cleared:
            self.device.hip.clear(own[name], stream)

    def _launch(self, pointers: Mapping[str, int], stream: int, warmups: int, repeats: int) -> Launch:
        filled = self.arguments(pointers, stream)
        start = ctypes.addressof(filled)
        for name, value in (("warmup", warmups), ("repeat", repeats)):
            ctypes.c_int32.from_address(start + self._places[name]).value = value
        launch = self.library.launch(filled, self._kernel)
        if launch.status != Status.OK:
            fault = self.device.fault()
            if fault is not None:
                self.device.recover()
            said = fault.message if fault is not None else launch.message
            raise LaunchError(f"{self.library.path}: {self.stages[0].name}: {launch.status.name.lower()}: {said}")
        chosen = tuple(one.name for one in self.stages)
        if self.named and self._kernel is None and launch.kernels != chosen:
            raise OtherKernelError(
                f"{self.library.path}: it ran {', '.join(launch.kernels)} and not {', '.join(chosen)}: libraries of "
                f"{self.library.family} take no kernel's name. Build what was chosen into a library of its own."
            )
        return launch

    def finish(self) -> None:
        """Wait for the device. Raises LaunchError: a launch faulted; the device is then recovered if it can be."""
        fault = self.device.fault()
        if fault is None:
            self.device.hip.synchronize()
            return
        self.device.recover()
        raise LaunchError(f"{self.stages[0].name} faulted: {fault.message}")

    @contextlib.contextmanager
    def _workspace(self, stream: int) -> Iterator[Mapping[str, Memory]]:
        """The stream's own workspaces, used by one launch at a time."""
        if not self.workspaces:
            yield {}
            return
        with self._lock:
            if stream not in self._by_stream:
                self._by_stream[stream] = _Workspace(self._allocated())
            own = self._by_stream[stream]
        with own.lock:
            yield own.memory

    def _allocated(self) -> dict[str, Memory]:
        """All workspaces, or none if memory runs out."""
        memory: dict[str, Memory] = {}
        try:
            for name, size in self.workspaces.items():
                memory[name] = self.device.hip.malloc(size)
        except HipError:
            self._free(memory)
            raise
        return memory

    def close(self) -> None:
        """Free the workspaces. The plan can be run again, and then allocates anew."""
        with self._lock:
            for own in self._by_stream.values():
                with own.lock:
                    self._free(own.memory)
            self._by_stream.clear()

    def _free(self, memory: Mapping[str, Memory]) -> None:
        for part in memory.values():
            with contextlib.suppress(HipError):  # of a lost device: the first error is the one to report
                self.device.hip.free(part)

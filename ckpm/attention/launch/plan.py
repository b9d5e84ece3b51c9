"""A plan: the launch of a problem by a library, made once and run many times. Calls and suites launch through it.

fwd, paged, append-KV and batch prefill have one stage, split-KV has two, backward three. A library launches all stages
of a call itself. The plan lists the kernels that run, and takes the workspaces between them.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import struct
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ckpm.attention.launch import arguments
from ckpm.attention.launch.c_abi import Launch, Library
from ckpm.attention.launch.device import Device
from ckpm.attention.launch.workspaces import Workspaces
from ckpm.base.errors import ArgumentError, DefectWarning, LaunchError, demand_type
from ckpm.kernels.abi import V3_SWITCH, CheckedArguments, Status
from ckpm.matrix.problems.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Numbers of launches. ``repeats`` 0: one launch, which has a time only with ``cold_bytes``.

    ``warmups`` launches come before the timed launches. ``cold_bytes`` are written before each timed launch, to flush
    the caches; each launch is then timed alone.
    """

    warmups: int = 0
    repeats: int = 0
    cold_bytes: int = 0

    def __post_init__(self) -> None:
        for name, most in (("warmups", 2**31 - 1), ("repeats", 2**31 - 1), ("cold_bytes", 2**63 - 1)):
            value = getattr(self, name)
            demand_type(name, value, int, "a whole number")
            if not 0 <= value <= most:
                raise ArgumentError(f"{name} is {value}: give a whole number from 0 to {most}.", kind="type")


UNTIMED = Timing()


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedLaunch:
    """A launch that ended well. ``milliseconds`` are one mean, or one for each cold launch; empty if untimed."""

    kernels: tuple[str, ...]
    milliseconds: tuple[float, ...] = ()

    @property
    def median(self) -> float:
        """The median of the times in milliseconds."""
        if not self.milliseconds:
            raise ValueError("the launch was not timed")
        return float(np.median(self.milliseconds))


_LAST = 2**64 - 1  # the last address


class _V3Switch:
    """The environment variable V3_SWITCH of :mod:`ckpm.kernels.abi`.

    It belongs to the process. So a launch that turns V3 off waits until no other launch runs, and others wait for it.
    The object itself is the context of a launch that leaves the variable as it is.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._running = self._waiting = 0

    def __enter__(self) -> None:
        with self._lock:
            self._running += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._running -= 1
            if self._waiting and not self._running:
                self._idle.notify_all()

    @contextlib.contextmanager
    def turned_off(self) -> Iterator[None]:
        """Launch without V3."""
        with self._lock:
            self._waiting += 1
            self._idle.wait_for(lambda: not self._running)
            self._waiting -= 1
            before = os.environ.get(V3_SWITCH)
            os.environ[V3_SWITCH] = "0"
            try:
                yield
            finally:
                if before is None:
                    del os.environ[V3_SWITCH]
                else:
                    os.environ[V3_SWITCH] = before


_V3 = _V3Switch()


class LaunchPlan:
    """One problem on one device, ready to launch. ``named``: exactly ``kernels`` are launched.

    ``inputs`` are the pointers that a launch needs. ``outputs`` and ``workspaces`` map pointers to sizes in bytes.
    Memory of workspaces is that of ``shared``, or the plan's own until :meth:`close`. Workspaces of ``cleared`` are
    zeroed before each launch. ``keep``: conditions that the caller's data must meet, because of known defects of CK.
    ``host_keep`` are those that calls with arrays of the host don't ensure themselves.
    """

    def __init__(
        self,
        problem: Problem,
        device: Device,
        library: Library,
        *,
        stages: tuple[Any, ...] = (),
        kernels: tuple[str, ...] = (),
        named: bool = False,
        keep: tuple[str, ...] = (),
        host_keep: tuple[str, ...] = (),
        shared: Workspaces | None = None,
        dropped: tuple[str, ...] = (),
    ) -> None:
        """Make a plan. ``kernels`` are by default the names of the chosen ``stages``; no caller reads ``dropped``."""
        self.problem, self.device, self.library = problem, device, library
        self.stages, self.named, self.keep, self._host_keep = stages, named, keep, host_keep
        self.kernels = kernels or tuple(stage.name for stage in stages)
        self.inputs, self.outputs = arguments.inputs(problem), dict(arguments.outputs(problem))
        self.workspaces = {**arguments.workspaces(problem), **{name: self.outputs.pop(name) for name in dropped}}
        self.cleared = arguments.zeroed_workspaces(problem)
        self.fields = arguments.fields(library.family, problem)
        self._template = library.arguments(**self.fields)
        self._kind = type(self._template)
        self._setters = {name: getattr(self._kind, name).__set__ for name in self._kind.kinds()}
        self._needed = (*self.inputs, *self.outputs)
        # Empty arrays may be at address 0, which libraries refuse. Without keys a kernel reads none of these.
        empty = not problem.seqlen_k and not keep and problem.family != "fwd_appendkv"
        self._unread = ("k", "v", "kv_page_indices") if empty else ()
        self._kernel = self.kernels[0] if named and library.arguments.BY_NAME else None
        self._own = Workspaces(device.hip)
        self._memory = shared or self._own
        self._warned = False

    def arguments(self, pointers: Mapping[str, int], stream: int = 0) -> CheckedArguments:
        """The library's struct of one launch. ``pointers`` are device addresses by the C ABI's names."""
        self._demand_pointers(pointers)
        return self._fill(pointers, stream)

    def _demand_pointers(self, pointers: Mapping[str, int]) -> None:
        if not isinstance(pointers, dict):
            demand_type("the plan's argument", pointers, Mapping, "a mapping from names to addresses")
        with contextlib.suppress(ValueError):  # an array, which _fill refuses
            if not all(map(pointers.get, self._needed)):
                name = next(pointer for pointer in self._needed if not pointers.get(pointer))
                raise ArgumentError(
                    f"{name} is null, and {self.problem.family} needs it for this problem.", kind="null"
                )

    def _fill(self, pointers: Mapping[str, int], stream: int) -> CheckedArguments:
        filled, setters = self._kind.from_buffer_copy(self._template), self._setters
        try:
            for name, address in pointers.items():
                if not 0 <= address <= _LAST:
                    raise ValueError
                setters[name](filled, address)
            if not 0 <= stream <= _LAST:
                raise ValueError
            setters["stream"](filled, stream)
        except (KeyError, TypeError, ValueError):
            self._refuse({**pointers, "stream": stream})
            return self._fill({name: address or 0 for name, address in pointers.items()}, stream or 0)
        return filled

    def _refuse(self, pointers: Mapping[str, Any]) -> None:
        """Refuse an unknown pointer, and an address that is neither a number of 64 bits nor None."""
        for name, address in pointers.items():
            if name not in self._setters:
                raise ArgumentError(
                    f"a launch of {self.problem.family} has no pointer {name!r}: it takes {', '.join(self._needed)}.",
                    kind="type",
                )
            if address is not None and not (isinstance(address, int) and 0 <= address <= _LAST):
                raise ArgumentError(f"{name} is {address!r}: it must be an address of 64 bits.", kind="dtype")

    def run(self, pointers: Mapping[str, int], *, stream: int = 0, timing: Timing = UNTIMED) -> FinishedLaunch:
        """Launch with device addresses. Return when the launch is queued; a timed launch has ended then.

        Raises:
            ArgumentError: a pointer that the problem needs is missing or 0, or one is not a whole number.
            HipError: no memory for the workspaces.
            LaunchError: the library refused the launch, the device faulted, or another kernel ran.
        """
        demand_type("timing", timing, Timing, "ckpm.Timing(warmups=..., repeats=...)")
        if self._unread and isinstance(pointers, Mapping):
            pointers = {**pointers, **{name: pointers.get("q", 0) for name in self._unread if name in pointers}}
        self._demand_pointers(pointers)  # nothing is launched without a pointer that the problem needs
        if not timing.cold_bytes:
            launch = self._ended_well(self.launch(pointers, stream, timing.warmups, timing.repeats))
            if timing.repeats and self.cleared:
                # the workspaces are cleared before the first repeat only, so the outputs are sums of all repeats
                self._ended_well(self.launch(pointers, stream))  # writes the outputs of one launch
            return FinishedLaunch(kernels=launch.kernels, milliseconds=(launch.milliseconds,) if timing.repeats else ())
        flushed = self.device.hip.malloc(timing.cold_bytes)
        try:
            if timing.warmups:
                self._ended_well(self.launch(pointers, stream, timing.warmups - 1, 1))
            launches = []
            for byte in range(max(timing.repeats, 1)):
                self.device.hip.fill(flushed, byte % 256)
                launches.append(self._ended_well(self.launch(pointers, stream, 0, 1)))
        finally:
            self.device.hip.free(flushed)
        return FinishedLaunch(
            kernels=launches[0].kernels, milliseconds=tuple(launch.milliseconds for launch in launches)
        )

    @functools.cached_property
    def queue(self) -> Callable[[Sequence[int], int], None]:
        """A function like :meth:`run` for callers that launch often.

        It takes the addresses of the inputs and outputs, in order, and a stream.
        """
        fields = [getattr(self._kind, name) for name in ("stream", *self._needed)]
        order = sorted(range(len(fields)), key=lambda at: fields[at].offset)
        first = end = fields[order[0]].offset
        layout = "="
        for at in order:
            layout, end = f"{layout}{fields[at].offset - end}xQ", fields[at].offset + 8
        assert not any(bytes(self._template)[first:end]), "pointers lie together, and a plan has none"
        pack, arrange = struct.Struct(layout).pack_into, operator.itemgetter(*order)
        copy, template, launch = self._kind.from_buffer_copy, self._template, self.library.bind(self._kernel)
        whole = not self.workspaces and self.problem.v3 != "off"
        whole = whole and not (self.named and self._kernel is None)  # run() checks which kernel ran

        def queue(addresses: Sequence[int], stream: int) -> None:
            if not whole or not all(addresses):
                self.run(dict(zip(self._needed, addresses, strict=True)), stream=stream)
                return
            filled = copy(template)
            try:
                pack(filled, first, *arrange((stream, *addresses)))
            except struct.error:  # run() names the number that doesn't fit
                self.run(dict(zip(self._needed, addresses, strict=True)), stream=stream)
                return
            with _V3:
                failed = launch(filled)
            if failed is not None:
                self._ended_well(failed)

        return queue

    def launch(self, pointers: Mapping[str, int], stream: int = 0, warmups: int = 0, repeats: int = 0) -> Launch:
        """Launch without checks, and return the status, also of a refusal or a fault.

        Memory of workspaces may be among the ``pointers``, as in the suites.
        """
        if self.workspaces.keys() <= pointers.keys():
            return self._launch_filled(self._fill(pointers, stream), warmups, repeats)
        needs = {name: size for name, size in self.workspaces.items() if name not in pointers}
        with self._memory.lend(stream, needs) as own:
            for name in own.keys() & self.cleared:
                self.device.hip.clear(own[name], stream)
            filled = self._fill({**{name: part.address for name, part in own.items()}, **pointers}, stream)
            return self._launch_filled(filled, warmups, repeats)

    def _launch_filled(self, filled: CheckedArguments, warmups: int = 0, repeats: int = 0) -> Launch:
        if warmups or repeats:
            self._setters["warmup"](filled, warmups)
            self._setters["repeat"](filled, repeats)
        with _V3.turned_off() if self.problem.v3 == "off" else _V3:
            return self.library.launch(filled, self._kernel)

    def _ended_well(self, launch: Launch) -> Launch:
        if launch.status != Status.OK:
            fault = self.device.fault()
            if fault is not None:
                self.device.recover()
            message = fault.message if fault is not None else launch.message
            raise LaunchError(f"{self.library.path}: {self.kernels[0]}: {launch.status.name.lower()}: {message}")
        if self.named and self._kernel is None and launch.kernels != self.kernels:
            raise LaunchError(
                f"{self.library.path}: it ran {', '.join(launch.kernels)} and not {', '.join(self.kernels)}: libraries "
                f"of {self.library.family} take no kernel's name. Build what was chosen into a library of its own.",
                kind="other-kernel",
            )
        return launch

    def warn(self, *, on_device: bool) -> None:
        """Warn once of the conditions that the caller's data must meet, on the device or on the host."""
        if (keep := self.keep if on_device else self._host_keep) and not self._warned:
            self._warned = True
            conditions = "; ".join(keep)
            remedy = "Kernels of the upstream ckpm need none of this."
            warnings.warn(f"{self.kernels[0]}: {conditions}. {remedy}", DefectWarning, stacklevel=4)

    def finish(self) -> None:
        """Wait for the device. After a fault recover it, if possible, and raise LaunchError."""
        fault = self.device.fault()
        if fault is None:
            self.device.hip.synchronize()
            return
        self.device.recover()
        raise LaunchError(f"{self.kernels[0]} faulted: {fault.message}")

    def close(self) -> None:
        """Free the plan's own workspaces. The plan can be run again, and then allocates them again."""
        self._own.close()

"""Device memory between the kernels of a launch, shared by all plans with the same :class:`Workspaces`."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ckpm.attention.launch.hip_api import HipApi, Memory
from ckpm.base.errors import HipError


@dataclass(slots=True)
class _OfStream:
    """Memory by name on one stream. ``outgrown`` memory was too small; a captured graph may still write to it."""

    memory: dict[str, Memory] = field(default_factory=dict)
    outgrown: list[Memory] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Workspaces:
    """Memory by GPU, stream and name. A stream's launches follow one another, so they share it.

    The default streams of all GPUs have the number 0.

    Memory that is too small is replaced by memory twice as large at least, and freed by :meth:`close` alone. So a
    stream holds less than four times its largest need.
    """

    def __init__(self, hip: HipApi) -> None:
        self._hip = hip
        self._streams: dict[tuple[int, int], _OfStream] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def lend(self, stream: int, needs: Mapping[str, int]) -> Iterator[Mapping[str, Memory]]:
        """Lend memory of these sizes for one launch. Meanwhile no other launch on the stream is queued.

        If memory runs out, nothing is kept of the needs.
        """
        with self._lock:
            own = self._streams.setdefault((self._hip.current_device(), stream), _OfStream())
        with own.lock:
            self._grow(own, needs)
            yield {name: Memory(own.memory[name].address, size) for name, size in needs.items()}

    def _grow(self, own: _OfStream, needs: Mapping[str, int]) -> None:
        fresh: dict[str, Memory] = {}
        try:
            for name, size in needs.items():
                there = own.memory.get(name)
                if there is None or there.size < size:
                    fresh[name] = self._allocate(size, 0 if there is None else 2 * there.size)
        except HipError:
            self._free(fresh.values())
            raise
        own.outgrown += [own.memory[name] for name in fresh if name in own.memory]
        own.memory |= fresh

    def _allocate(self, size: int, rather: int) -> Memory:
        if rather > size:
            with contextlib.suppress(HipError):
                return self._hip.malloc(rather)
        return self._hip.malloc(size)

    def close(self) -> None:
        """Free everything. Later launches allocate again."""
        with self._lock:
            streams = list(self._streams.values())
        for own in streams:
            with own.lock:  # a launch that waits for it finds nothing, and allocates
                self._free([*own.memory.values(), *own.outgrown])
                own.memory.clear()
                own.outgrown.clear()

    def _free(self, parts: Iterable[Memory]) -> None:
        for part in parts:
            with contextlib.suppress(HipError):  # of a lost device: the first error is the one to report
                self._hip.free(part)

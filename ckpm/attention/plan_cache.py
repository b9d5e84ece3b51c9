"""Plans of a dispatcher, kept by problem, and by the arguments of calls with tensors of PyTorch on their GPU.

A later call with such tensors fills in addresses and launches. Checks are not repeated.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ckpm.attention.arrays.outputs import Form
from ckpm.attention.arrays.posing import Posed
from ckpm.attention.arrays.tensors import WORDS, OnDevice
from ckpm.attention.launch.plan import LaunchPlan
from ckpm.attention.registry import Registry
from ckpm.matrix.problems.problem import Problem

_MOST = 4096  # entries; above this number all are forgotten


class PlannedCall(NamedTuple):
    """A call on the device, ready to run. ``addresses`` returns the addresses of the plan's inputs from its tensors."""

    plan: LaunchPlan
    problem: Problem
    outputs: Sequence[Form]
    addresses: Callable[[Sequence[Any]], list[int]]


class _Latest(NamedTuple):
    """The latest call with a key. ``check``, of PyTorch's guards, compares all tensors with that call's at once."""

    call: PlannedCall
    check: Callable[..., bool]
    pick: Callable[[Sequence[Any]], Sequence[Any]]
    pick_absent: Callable[[Sequence[Any]], Any]
    absent: Any


class PlanCache:
    """Plans by problem, calls by their arguments, and refusals of both, until the registry changes.

    Threads may use it at once. A plan that was begun before the registry changed is forgotten with the old entries.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.forget()

    def forget(self) -> None:
        """Forget all entries."""
        self._state: tuple[int, dict[Any, Any]] = self._registry.version, {}

    @property
    def entries(self) -> dict[Any, Any]:
        """The entries of the current registry."""
        version, entries = self._state
        if version != self._registry.version:
            self.forget()
            entries = self._state[1]
        return entries

    def keep(self, key: Any, make: Callable[[], Any]) -> Any:
        """The entry of a key, made if it is not there."""
        return _keep(self.entries, key, make)

    def find_call(self, key: Any, tensors: Sequence[Any]) -> PlannedCall | None:
        """The latest call with a key, if its tensors were like these."""
        version, entries = self._state
        latest: _Latest | None = entries.get(key) if version == self._registry.version else None
        if latest is None:
            return None
        call, check, pick, pick_absent, absent = latest
        return call if check(*pick(tensors)) and pick_absent(tensors) == absent else None

    def keep_call(self, key: Any, tensors: Sequence[Any], make: Callable[[], PlannedCall | None]) -> PlannedCall | None:
        """The call of a key and of tensors like these, made if it is not there; None if ``make`` returned none."""
        entries = self.entries
        call: PlannedCall | None = _keep(entries, (key, *map(_signature, tensors)), make)
        if call is not None and (latest := _guard(call, tensors)) is not None:
            entries[key] = latest
        return call


def _keep(entries: dict[Any, Any], key: Any, make: Callable[[], Any]) -> Any:
    with contextlib.suppress(KeyError):
        return entries[key]
    entry = make()
    if len(entries) >= _MOST:
        entries.clear()
    entries[key] = entry
    return entry


def _guard(call: PlannedCall, tensors: Sequence[Any]) -> _Latest | None:
    """The call with guards of its tensors; None if PyTorch has no guards, or refuses them for a tensor given twice."""
    there = [tensor for tensor in tensors if tensor is not None]
    guards = _guards()
    if guards is None or len(set(map(id, there))) < len(there):
        return None
    lengths, steps = [list(tensor.shape) for tensor in there], [list(tensor.stride()) for tensor in there]
    check = guards(*there, dynamic_dims_sizes=lengths, dynamic_dims_strides=steps).check
    places = [at for at, tensor in enumerate(tensors) if tensor is not None]
    absent: list[Any] = [at for at, tensor in enumerate(tensors) if tensor is None]
    pick_absent = operator.itemgetter(*absent or [slice(0)])
    return _Latest(call, check, operator.itemgetter(*places), pick_absent, pick_absent(tensors))


@functools.cache
def _guards() -> Any:
    """The class of PyTorch's guards of tensors, which are its own and may change; None without them."""
    try:
        from torch._C._dynamo.guards import TensorGuards
    except ImportError:
        return None
    return TensorGuards


def _signature(tensor: Any) -> Any:
    """Type, shape, strides, dtype and GPU of a tensor: all that a plan depends on."""
    if tensor is None:
        return None
    return type(tensor), tensor.shape, tensor.stride(), tensor.dtype, tensor.get_device()


def stand_ins(tensors: Sequence[Any]) -> list[OnDevice | None]:
    """Shapes and dtypes of a call's tensors, with the addresses 1, 2 and so on; None for None.

    Raises:
        KeyError: no kernel reads a tensor's dtype.
    """
    return [
        None if tensor is None else OnDevice(
            address=at, shape=tuple(tensor.shape), dtype=WORDS[str(tensor.dtype).rpartition(".")[2]],
            strides=tensor.stride(),
        )
        for at, tensor in enumerate(tensors, 1)
    ]  # fmt: skip


def read_addresses(posed: Posed, plan: LaunchPlan) -> Callable[[Sequence[Any]], list[int]]:
    """Return ``addresses`` of a :class:`PlannedCall` whose posed inputs are stand-ins of its tensors."""
    pick = operator.itemgetter(*(posed.inputs[name].address - 1 for name in plan.inputs))
    offsets = [posed.offset(name) for name in plan.inputs]
    read = sys.modules["torch"].Tensor.data_ptr  # faster than the method of each
    if any(offsets):
        return lambda tensors: [*map(operator.add, map(read, pick(tensors)), offsets)]
    return lambda tensors: [*map(read, pick(tensors))]

"""Plans of calls with tensors of PyTorch on the GPU, kept by shapes, strides and dtypes.

A later call with such tensors fills in addresses and launches. Checks are not repeated.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ckpm.attention.arrays.options import Options
from ckpm.attention.arrays.posing import Posed, pose
from ckpm.attention.arrays.pytorch import namespace
from ckpm.attention.arrays.tables import Pages
from ckpm.attention.arrays.tensors import WORDS, OnDevice
from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.launch.plan import LaunchPlan
from ckpm.base.errors import ProblemError

_MOST = 4096  # above this number all are forgotten
_FIELDS = tuple(field.name for field in dataclasses.fields(Pages))


Outputs = Callable[[LaunchPlan, Posed], tuple[Sequence[str], Any]]


class Kept(NamedTuple):
    """A plan and the posed call that it was made of.

    ``inputs`` are its pointers, each with the index of its tensor and an offset. ``run`` launches the plan with the
    addresses of the inputs and of ``more`` pointers, in order, and a stream. ``pick`` returns the tensors of the
    inputs, and ``read_address`` the address of one. ``offsets`` are empty if all are 0. ``o`` is the caller's
    description of its outputs.
    """

    plan: LaunchPlan
    posed: Posed
    inputs: tuple[tuple[str, int, int], ...]
    run: Callable[[Sequence[int], int], None]
    pick: Callable[[Sequence[Any]], Sequence[Any]]
    read_address: Callable[[Any], int]
    offsets: tuple[int, ...]
    o: Any = None

    def addresses(self, tensors: Sequence[Any]) -> list[int]:
        """Addresses of the inputs."""
        addresses = map(self.read_address, self.pick(tensors))
        return [*map(operator.add, addresses, self.offsets)] if self.offsets else [*addresses]

    def pointers(self, tensors: Sequence[Any]) -> dict[str, int]:
        """Addresses of the inputs by the C ABI's names."""
        return dict(zip((name for name, _, _ in self.inputs), self.addresses(tensors), strict=True))


def find(dispatcher: Dispatcher, key: Any, tensors: Sequence[Any], make: Callable[[], Kept | None]) -> Kept | None:
    """The plan of a key and of tensors, made at the first call; None if ``make`` returns none.

    The tensors of the latest call with a key are compared by PyTorch's own guards, which read all of a signature at
    once. Other tensors are looked up by their signatures.
    """
    if (latest := find_latest(dispatcher, key, tensors)) is not None:
        return latest
    near = dispatcher.registry.version, key
    there = [tensor for tensor in tensors if tensor is not None]
    whole = near, *map(type, tensors), *map(signature, there)
    try:
        kept: Kept | None = dispatcher.kept[whole]
    except KeyError:
        kept = make()
        if len(dispatcher.kept) >= _MOST:
            dispatcher.kept.clear()
            dispatcher.latest.clear()
        dispatcher.kept[whole] = kept
    if kept is not None and len(set(map(id, there))) == len(there) > 0 and (guards := _guards()) is not None:
        lengths, steps = [list(tensor.shape) for tensor in there], [list(tensor.stride()) for tensor in there]
        guard = guards(*there, dynamic_dims_sizes=lengths, dynamic_dims_strides=steps).check
        places = [at for at, tensor in enumerate(tensors) if tensor is not None]
        absent: list[Any] = [at for at, tensor in enumerate(tensors) if tensor is None]
        pick, pick_absent = operator.itemgetter(*places), operator.itemgetter(*absent or [slice(0)])
        dispatcher.latest[near] = pick, guard, pick_absent, pick_absent(tensors), kept
    return kept


def find_latest(dispatcher: Dispatcher, key: Any, tensors: Sequence[Any]) -> Kept | None:
    """The plan of the latest call with a key, if its tensors were like these."""
    if (latest := dispatcher.latest.get((dispatcher.registry.version, key))) is None:
        return None
    pick, guard, pick_absent, absent, kept = latest
    return kept if guard(*pick(tensors)) and pick_absent(tensors) == absent else None


@functools.cache
def _guards() -> Any:
    """The class of PyTorch's guards of tensors, which are its own and may change; None without them."""
    try:
        from torch._C._dynamo.guards import TensorGuards
    except ImportError:
        return None
    return TensorGuards


def signature(tensor: Any) -> tuple[Any, ...]:
    """Shape, strides, dtype and GPU: all of a tensor that a plan depends on."""
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.get_device()


def stand_in(at: int, tensor: Any) -> Any:
    """A tensor's shape and dtype, with the address ``at``; None for None."""
    if tensor is None:
        return None
    word = WORDS[str(tensor.dtype).rpartition(".")[2]]
    return OnDevice(address=at, shape=tuple(tensor.shape), dtype=word, strides=tensor.stride())


def keep(dispatcher: Dispatcher, posed: Posed, more: Sequence[str] = (), o: Any = None) -> Kept:
    """Make a plan of posed stand-ins, whose addresses are 1, 2 and so on."""
    plan = dispatcher.plan(posed.problem)
    there = [name for name in plan.inputs if name in posed.inputs]
    inputs = tuple((name, posed.inputs[name].address - 1, posed.offset(name)) for name in there)
    pick, offsets = operator.itemgetter(*(at for _, at, _ in inputs)), tuple(offset for *_, offset in inputs)
    read_address = sys.modules["torch"].Tensor.data_ptr  # faster than the method of each
    return Kept(plan, posed, inputs, plan.bind((*there, *more)), pick, read_address, offsets if any(offsets) else (), o)


def find_posed(
    dispatcher: Dispatcher, pose_call: Any, tensors: Sequence[Any], numbers: Any, outputs: Outputs
) -> Kept | None:
    """The kept plan of a call whose tensors and numbers ``pose_call`` converts; None as :func:`find_kept`.

    ``outputs`` returns :func:`keep`'s ``more`` and ``o`` from a plan and its posed call.
    """

    def make() -> Kept | None:
        if len({tensor.get_device() for tensor in tensors if tensor is not None}) > 1:
            return None
        try:
            (q, k, v), options = pose_call([stand_in(at, tensor) for at, tensor in enumerate(tensors, 1)], numbers)
            posed = pose(dispatcher.device, q, k, v, Options(**options))
        except (ProblemError, KeyError):
            return None
        return keep(dispatcher, posed, *outputs(dispatcher.plan(posed.problem), posed))

    try:
        return find(dispatcher, (pose_call, numbers), tensors, make)
    except (AttributeError, TypeError):  # a number or an array among the tensors, or a number without a hash
        return None


def find_kept(dispatcher: Dispatcher, arguments: Mapping[str, Any], outputs: Outputs) -> tuple[Kept, list[Any]] | None:
    """The kept plan of ``fmha``'s Q, K, V and options, and its tensors; None if the call has to be posed each time.

    The latter are calls whose inputs are converted (scales that are numbers or have 16 bits), calls with arrays other
    than tensors of one GPU, and refused calls.
    """
    torch, tensors = namespace(arguments["q"]), list[Any]()

    def sign(value: Any) -> Any:
        if isinstance(value, OnDevice):
            raise TypeError("an address of the caller's")
        if not isinstance(value, torch.Tensor):
            return value
        tensors.append(value)
        return signature(value)

    def make() -> Kept | None:
        if len({tensor.get_device() for tensor in tensors}) > 1:
            return None
        places = iter(range(1, len(tensors) + 1))
        try:
            posing = _map_leaves(
                arguments, lambda value: stand_in(next(places), value) if isinstance(value, torch.Tensor) else value
            )
            arrays = posing.pop("q"), posing.pop("k"), posing.pop("v")
            posed = pose(dispatcher.device, *arrays, Options(**posing))
        except (ProblemError, KeyError):  # posing the tensors themselves converts them, or raises with their names
            return None
        return keep(dispatcher, posed, *outputs(dispatcher.plan(posed.problem), posed))

    try:
        kept = find(dispatcher, tuple(_map_leaves(arguments, sign).items()), (), make)
    except TypeError:  # an array without a hash; posing raises errors of options
        return None
    return None if kept is None else (kept, tensors)


def _map_leaves(arguments: Mapping[str, Any], act: Callable[[Any], Any]) -> dict[str, Any]:
    """The arguments with each table, tuple's element or other value replaced by ``act``'s result."""
    replaced: dict[str, Any] = {}
    for name, value in arguments.items():
        if isinstance(value, Pages):
            replaced[name] = Pages(**{field: act(getattr(value, field)) for field in _FIELDS})
        else:
            replaced[name] = tuple(map(act, value)) if isinstance(value, tuple) else act(value)
    return replaced

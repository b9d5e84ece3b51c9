"""Plans of calls with tensors of PyTorch on the GPU, kept by shapes, strides and dtypes.

A later call with such tensors fills in addresses and launches. What was checked once is not checked again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ckpm.attention.arrays.options import Options
from ckpm.attention.arrays.posing import Posed, pose
from ckpm.attention.arrays.pytorch import namespace, padded_list
from ckpm.attention.arrays.tables import Pages
from ckpm.attention.arrays.tensors import WORDS, OnDevice
from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.launch.plan import Plan
from ckpm.base.errors import ProblemError

_MOST = 4096  # with more all are forgotten
_FIELDS = tuple(one.name for one in dataclasses.fields(Pages))


class Kept(NamedTuple):
    """A plan, what it was made of, and each pointer that it reads with the place of its tensor and an offset.

    ``run`` launches the plan with the addresses of the inputs and of ``more`` pointers, in order, and a stream. ``o``
    is the shape and dtype of O, for a caller that allocates it.
    """

    plan: Plan
    posed: Posed
    inputs: tuple[tuple[str, int, int], ...]
    run: Callable[[Sequence[int], int], None]
    o: Any = None

    def addresses(self, tensors: Sequence[Any]) -> list[int]:
        """Addresses of the inputs."""
        return [tensors[at].data_ptr() + offset for _, at, offset in self.inputs]

    def pointers(self, tensors: Sequence[Any]) -> dict[str, int]:
        """Addresses of the inputs by the C ABI's names."""
        return dict(zip((name for name, _, _ in self.inputs), self.addresses(tensors), strict=True))


def find(over: Dispatcher, key: Any, make: Callable[[], Kept | None]) -> Kept | None:
    """The plan of a key, made at the first call; a key without a plan has None. Raises as ``make``."""
    key = over.registry.version, key
    try:
        found: Kept | None = over.kept[key]
    except KeyError:
        found = make()
        if len(over.kept) >= _MOST:
            over.kept.clear()
        over.kept[key] = found
    return found


def signature(tensor: Any) -> tuple[Any, ...]:
    """Shape, strides, dtype and GPU: all of a tensor that a plan depends on."""
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.get_device()


def stand_in(at: int, given: Any) -> Any:
    """A tensor's shape and dtype, with the address ``at``; None for None."""
    if given is None:
        return None
    word = WORDS[str(given.dtype).rpartition(".")[2]]
    return OnDevice(address=at, shape=tuple(given.shape), dtype=word, strides=given.stride())


def keep(over: Dispatcher, posed: Posed, more: Sequence[str] = (), o: Any = None) -> Kept:
    """Make a plan of posed stand-ins, whose addresses are 1, 2 and so on. Raises as Dispatcher.plan."""
    plan = over.plan(posed.problem)
    there = [name for name in plan.inputs if name in posed.inputs]
    inputs = tuple((name, posed.inputs[name].address - 1, posed.offset(name)) for name in there)
    return Kept(plan, posed, inputs, plan.bind((*there, *more)), o)


def find_kept(over: Dispatcher, given: Mapping[str, Any]) -> tuple[Kept, list[Any]] | None:
    """The kept plan of ``fmha``'s Q, K, V and options, and its tensors; None if the call has to be posed each time.

    Such are calls whose inputs are converted (scales that are numbers or have 16 bits), calls with other arrays than
    tensors of one GPU, and those that are refused.
    """
    pages = given.get("pages")
    if pages is not None and (indices := padded_list(pages.indices)) is not pages.indices:
        given = {**given, "pages": dataclasses.replace(pages, indices=indices)}
    torch, tensors = namespace(given["q"]), list[Any]()

    def sign(one: Any) -> Any:
        if isinstance(one, OnDevice):
            raise TypeError("an address of the caller's")
        if not isinstance(one, torch.Tensor):
            return one
        tensors.append(one)
        return signature(one)

    def make() -> Kept | None:
        if len({one.get_device() for one in tensors}) > 1:
            return None
        places = iter(range(1, len(tensors) + 1))
        try:
            posing = _map_leaves(
                given, lambda one: stand_in(next(places), one) if isinstance(one, torch.Tensor) else one
            )
            arrays = posing.pop("q"), posing.pop("k"), posing.pop("v")
            posed = pose(over.device, *arrays, Options(**posing))
        except (ProblemError, KeyError):  # posing the tensors themselves converts them, or raises with their names
            return None
        return keep(over, posed)

    try:
        kept = find(over, tuple(_map_leaves(given, sign).items()), make)
    except TypeError:  # an array without a hash; posing raises those of options
        return None
    return None if kept is None else (kept, tensors)


def _map_leaves(given: Mapping[str, Any], act: Callable[[Any], Any]) -> dict[str, Any]:
    """The same options with each table, tuple's element or value replaced by ``act``'s result."""
    made: dict[str, Any] = {}
    for name, one in given.items():
        if isinstance(one, Pages):
            made[name] = Pages(**{field: act(getattr(one, field)) for field in _FIELDS})
        else:
            made[name] = tuple(map(act, one)) if isinstance(one, tuple) else act(one)
    return made

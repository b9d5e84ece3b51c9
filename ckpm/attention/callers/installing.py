"""Put this project's functions in the place of an installed aiter's."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ckpm.attention.callers import aiter as served
from ckpm.attention.callers.aiter_latent import LSE
from ckpm.attention.dispatcher import Dispatcher
from ckpm.base.errors import ProblemError, ServiceError

SERVED = tuple(served.__all__)
_UNIFIED = "unified_attention"
_HOMES = (
    "aiter",
    "aiter.mla",
    f"aiter.ops.triton.attention.{_UNIFIED}",
    f"aiter.ops.triton.{_UNIFIED}",
)  # the last: of older aiters
# vLLM calls torch.ops.aiter.paged_attention_v1. Other functions of aiter call their operator themselves.
_OPERATORS = ("paged_attention_v1", "paged_attention_ragged")
_LOG = logging.getLogger(__name__)


def install(dispatcher: Dispatcher | None = None) -> tuple[str, ...]:
    """Put ``ckpm.aiter``'s functions in the place of aiter's; return the names of the replaced functions.

    They are replaced in each module that is loaded by then, and among PyTorch's operators of aiter. Positional
    arguments have the order of the installed aiter. A call that no kernel here serves, or whose kernel can't be
    compiled, is logged with its reason as a warning, and goes to aiter's own function. Without ``dispatcher`` the
    libraries are ``fmha``'s default. A second call changes only the dispatcher.

    Raises:
        ImportError: no aiter is installed.
    """
    homes = [importlib.import_module("aiter")]
    for name in _HOMES[1:]:
        with contextlib.suppress(ImportError):  # without Triton
            homes.append(importlib.import_module(name))
    replaced = {}
    for name in SERVED:
        original = next((function for home in homes if callable(function := getattr(home, name, None))), None)
        if original is not None:
            original = getattr(original, "replaced_by_ckpm", original)
            replaced[name] = original, _replacement(name, getattr(served, name), original, dispatcher)
    for module in list(sys.modules.values()):
        for name, (original, replacement) in replaced.items():
            there = getattr(module, "__dict__", {}).get(name)
            if there is not None and getattr(there, "replaced_by_ckpm", there) is original:
                setattr(module, name, replacement)
    operators = getattr(getattr(sys.modules.get("torch"), "ops", None), "aiter", None)
    for name in _OPERATORS:
        if name in replaced and hasattr(operators, name):
            setattr(operators, name, replaced[name][1])
    _LOG.info("aiter's %s are served by ckpm", ", ".join(replaced))
    return tuple(replaced)


def _replacement(
    name: str, function: Callable[..., Any], original: Callable[..., Any], dispatcher: Dispatcher | None
) -> Callable[..., Any]:
    known = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    needed = {parameter.name: parameter.default is parameter.empty for parameter in known}
    order = _order(original) or list(needed)

    @functools.wraps(original)
    def call(*args: Any, **named: Any) -> Any:
        try:
            done = function(**_arguments(order, needed, args, named), dispatcher=dispatcher)
        except (*served.NOT_SERVED, ServiceError, ProblemError) as reason:
            if any(hasattr(argument, LSE) for argument in (*args, *named.values())):
                raise  # O is whole, and aiter would merge parts that nothing wrote
            level = logging.DEBUG if name == "mla_reduce_v1" else logging.WARNING  # aiter's own decode calls it
            _LOG.log(level, "aiter.%s: this call goes to aiter: %s", name, reason)
            return original(*args, **named)
        _LOG.debug("aiter.%s: this call was served", name)
        return done

    call.replaced_by_ckpm = original  # type: ignore[attr-defined]
    return call


def _order(original: Callable[..., Any]) -> list[str]:
    """Parameters of aiter's own function by position; [] if they are hidden, as by aiter's compiled operators."""
    with contextlib.suppress(ValueError):  # a function without a signature
        parameters = inspect.signature(original).parameters.values()
        if not any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
            return [parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    return []


def _arguments(
    order: Sequence[str], needed: Mapping[str, bool], args: tuple[Any, ...], named: Mapping[str, Any]
) -> dict[str, Any]:
    """A call's arguments by name. Refuse other parameters than those here, and calls that need gradients."""
    arguments = {**dict(zip(order, args, strict=False)), **named}
    if len(arguments) < len(args) + len(named):
        raise ProblemError("the call has more arguments than aiter's function has, or one of them twice.")
    if unknown := arguments.keys() - needed:
        raise ProblemError(f"aiter's parameter {', '.join(sorted(unknown))} is not known here.")
    if missing := [name for name, must in needed.items() if must and name not in arguments]:
        raise ProblemError(f"the call is without {', '.join(missing)}, which is needed here.")
    torch = sys.modules.get("torch")
    gradients = torch is not None and torch.is_grad_enabled()
    if gradients and any(getattr(argument, "requires_grad", False) for argument in arguments.values()):
        raise ProblemError("the call needs gradients: ckpm.torch.varlen_attention has them.")
    return arguments

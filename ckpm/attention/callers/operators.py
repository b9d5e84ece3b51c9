"""Registration of PyTorch's operators: their errors, their gradients, and what torch.autocast casts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch.autograd.forward_ad import unpack_dual

from ckpm.base.errors import ArgumentError, CkPrefillError, NoKernelError, ProblemError

_CAST = (torch.float16, torch.bfloat16, torch.float32)  # of Q, K and V; fp8 has its scales
_BACKWARD = "call backward() or torch.autograd.grad"
_LIBRARY = torch.library.Library("ckpm", "DEF")


def _translate_errors(call: Callable[..., Any]) -> Callable[..., Any]:
    """Raise this project's errors as the exceptions that PyTorch uses."""

    @functools.wraps(call)
    def call_and_translate(*arguments: Any) -> Any:
        try:
            return call(*arguments)
        except NoKernelError as error:
            raise NotImplementedError(str(error)) from error
        except CkPrefillError as error:
            of_value = isinstance(error, ProblemError) and not isinstance(error, ArgumentError)
            raise (ValueError if of_value else RuntimeError)(str(error)) from error

    return call_and_translate


def register(define: Callable[..., Any], launch: Callable[..., Any], trace: Callable[..., Any]) -> Any:
    """Define an operator by its annotations; return its overload."""
    call = define(_translate_errors(launch))
    name = call.__name__
    _LIBRARY.define(name + torch.library.infer_schema(call, mutates_args=()))
    for key in ("CPU", "CUDA"):  # ROCm's tensors have CUDA's key
        _LIBRARY.impl(name, call, key)
    torch.library.register_fake(f"ckpm::{name}", define(_translate_errors(trace)), lib=_LIBRARY)
    return getattr(torch.ops.ckpm, name).default


def differentiate(overload: Any, gradients: Callable[..., Any], save: Callable[..., None] | None = None) -> None:
    """Register an operator's gradients; tangents are refused."""

    def register_kernel(name: str, kernel: Callable[..., Any], *key: str, **more: Any) -> None:
        _LIBRARY.impl(name, _name_transform(kernel, name), *key, **more)

    library: Any = SimpleNamespace(impl=register_kernel)
    torch.library.register_autograd(overload.name(), gradients, setup_context=save, lib=library)


def autocast(overload: Any) -> None:
    """Register casts of an operator's Q, K and V in torch.autocast, as in PyTorch's attention."""
    for device in ("cpu", "cuda"):
        _LIBRARY.impl(overload.name(), _cast(overload, device), f"Autocast{device.upper()}")


def _name_transform(kernel: Callable[..., Any], name: str) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        tensors = (value for value in arguments if isinstance(value, torch.Tensor))
        if any(unpack_dual(tensor).tangent is not None for tensor in tensors):
            raise RuntimeError(f"ckpm::{name} has no tangents (forward_ad, torch.func.jvp and jacfwd): {_BACKWARD}.")
        try:
            return kernel(*arguments)
        except RuntimeError as error:
            if "functorch transforms" not in str(error):
                raise
            raise RuntimeError(
                f"ckpm::{name} has no gradient in torch.func (grad, vjp, jacrev): {_BACKWARD}."
            ) from error

    return call


def _cast(overload: Any, device: str) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        dtype = torch.get_autocast_dtype(device)
        qkv = (tensor.to(dtype) if tensor.dtype in _CAST else tensor for tensor in arguments[:3])
        with torch.autocast(device, enabled=False):
            return overload(*qkv, *arguments[3:])

    return call

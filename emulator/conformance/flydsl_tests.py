"""Run FlyDSL's examples on the HIP device: ``python flydsl_tests.py FOLDER OPTION...`` of googletest.

A stand-in takes the place of PyTorch's GPU: its tensors lie in the host's memory, which is registered with HIP.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import io
import os
import runpy
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import as_googletest
import torch
from torch.overrides import TorchFunctionMode

_RIGHT = ("PASS", "Result correct: True")
HIP = ctypes.CDLL("libamdhip64.so.7")
HIP.hipHostRegister.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint]


class _OnHost(TorchFunctionMode):  # type: ignore[misc]  # without PyTorch it is Any
    """Replaces the device of each call of PyTorch by the host, and registers the memory of its results."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.Tensor.cuda:
            return args[0]
        keywords = {name: _on_host(value) for name, value in (kwargs or {}).items()}
        result = func(*map(_on_host, args), **keywords)
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, torch.Tensor) and (size := tensor.untyped_storage().nbytes()):
                HIP.hipHostRegister(tensor.untyped_storage().data_ptr(), size, 0)  # most are already
        return result


def _on_host(value: Any) -> Any:
    return "cpu" if isinstance(value, (str, torch.device)) and str(value).startswith("cuda") else value


class _Stream:
    cuda_stream = 0


def _run(file: Path) -> None:
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit), _OnHost():
        runpy.run_path(str(file), run_name="__main__")
    assert any(text in output.getvalue() for text in _RIGHT), output.getvalue()


def main(folder: str, *requests: str) -> None:
    """List or run the examples of a folder."""
    of_device = ctypes.create_string_buffer(4096)
    assert HIP.hipGetDevicePropertiesR0600(of_device, 0) == 0
    arch = of_device.raw[of_device.raw.index(b"gfx") :].partition(b":")[0].decode()
    os.environ["FLYDSL_GPU_ARCH"] = arch
    properties = SimpleNamespace(gcnArchName=arch)
    replacements = {"Stream": _Stream, "current_stream": _Stream, "synchronize": HIP.hipDeviceSynchronize}
    replacements |= {"is_available": lambda: True, "get_device_properties": lambda device=0: properties}
    for name, replacement in replacements.items():
        setattr(torch.cuda, name, replacement)
    clone = next(parent for parent in Path(folder).parents if (parent / "tests").is_dir())
    sys.path.insert(0, str(clone))  # its examples import helpers of its tests
    files = sorted(Path(folder).glob("[0-9]*.py"))
    as_googletest.run({f"examples.{file.stem}": functools.partial(_run, file) for file in files}, requests)


if __name__ == "__main__":
    main(*sys.argv[1:])

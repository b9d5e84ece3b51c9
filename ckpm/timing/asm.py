"""AITER's hand-written forward kernels of bf16 and head dim 128: their code objects, and a launch of one.

The order of the arguments follows fmha_fwd_v3_args in aiter's csrc/include/mha_fwd.h, each in 16 bytes. Grid, block and
tile follow its host code (hsa/ARCH/fmha_v3_fwd/codegen.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import struct
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.launch.device import Device, EmulatedDevice
from ckpm.attention.launch.hip_api import Memory
from ckpm.attention.launch.launching import host_buffers, upload
from ckpm.base.files import hold_lock, sha256_of
from ckpm.kernels.upstream.trees import fetch_archive
from ckpm.matrix.dialects import check_upstream
from ckpm.timing.published import PublishedShape

ROWS = 256  # queries of a tile
_HEAD_DIM, _BYTES = 128, 2
_FOLDERS = {"gfx942": "MI300/", "gfx950": ""}
_SUFFIXES = {"gfx942": "_rtna", "gfx950": ""}  # conversion to bf16: the host code's default
_THREADS = 512
_TUNING = 5  # s_opt of the host code for heads in eights and at most 16,384 queries


class TimedLaunch(NamedTuple):
    """Mean microseconds of a launch, and the bits of its Q, K, V and O, each as [token, head, dim]."""

    microseconds: float
    arrays: Mapping[str, NDArray[Any]]
    o: NDArray[Any]


def code_object(arch: str, causal: bool, cache: Path) -> tuple[bytes, str]:
    """The code object and the name of its kernel."""
    name = f"hd{_HEAD_DIM}_bf16{'_causal' if causal else ''}{_SUFFIXES[arch]}"
    member = f"aiter_meta/hsa/{arch}/fmha_v3_fwd/{_FOLDERS[arch]}fwd_{name}.co"
    with zipfile.ZipFile(_package(cache)) as archive:
        function = f"fmha_fwd_{name}"
        return archive.read(member), f"_ZN5aiter{len(function)}{function}E"


def _package(cache: Path) -> Path:
    package = check_upstream("aiter")
    file = cache / "upstream" / package.file
    with hold_lock(file.with_suffix(".lock")):
        if not file.is_file() or sha256_of(file) != package.sha256:  # an interrupt leaves a part
            fetch_archive(package, file)
    return file


def launch(device: EmulatedDevice, code: tuple[bytes, str], shape: PublishedShape) -> None:
    """Run the workgroup that the device's option ``record`` names."""
    with _upload(device, shape, _tensors(shape)) as (grid, arguments, _):
        device.launch_code(code[0], code[1], grid, _THREADS, arguments)


def time(device: Device, code: tuple[bytes, str], shape: PublishedShape, repeats: int) -> TimedLaunch:
    """Launch on a GPU."""
    arrays = _tensors(shape)
    with _upload(device, shape, arrays) as (grid, arguments, o):
        microseconds = device.hip.time_code(code[0], code[1], grid, _THREADS, arguments, repeats)
        return TimedLaunch(microseconds, arrays, device.hip.read(o, np.uint16, arrays["q"].shape))


def _tensors(shape: PublishedShape) -> dict[str, NDArray[np.uint16]]:
    """Bits of random Q, K and V."""
    generator = np.random.default_rng(0)
    rows = {"q": shape.heads, "k": shape.kv_heads, "v": shape.kv_heads}
    return {
        name: generator.integers(0x3C00, 0x4000, (shape.batch * shape.length, heads, _HEAD_DIM), np.uint16)
        | generator.integers(0, 2, (shape.batch * shape.length, heads, _HEAD_DIM), np.uint16) << 15
        for name, heads in rows.items()
    }


@contextlib.contextmanager
def _upload(
    device: Device, shape: PublishedShape, arrays: Mapping[str, NDArray[np.uint16]]
) -> Iterator[tuple[tuple[int, int, int], bytes, Memory]]:
    """The grid and the arguments of a launch, whose tensors are on the device, and the memory of O."""
    outputs = {"o": arrays["q"].nbytes, "lse": 4 * len(arrays["q"]) * shape.heads}
    # a head's buffer is as long as that of all heads: it ends in the row after the last
    row = _BYTES * _HEAD_DIM * shape.heads
    buffers = {
        name: dataclasses.replace(buffer, size=buffer.size + row)
        for name, buffer in host_buffers(arrays, outputs).items()
    }
    with upload(device, buffers) as memory:
        tiles = -(-shape.length // ROWS)
        grid = (-(-tiles // 2) if shape.causal else tiles, shape.heads, shape.batch)
        addresses = {name: part.address for name, part in memory.items()}
        yield grid, _arguments(addresses, shape), memory["o"]


def _arguments(at: dict[str, int], shape: PublishedShape) -> bytes:
    head, query, key = (_BYTES * _HEAD_DIM * count for count in (1, shape.heads, shape.kv_heads))
    of_query, of_key = (query, head, query * shape.length), (key, head, key * shape.length)
    numbers: list[tuple[str, float]] = [("Q", at[name]) for name in ("o", "q", "k", "v", "lse")]
    numbers.append(("f", _HEAD_DIM**-0.5))
    numbers += [("I", number) for number in (shape.length, query, ROWS * query, *of_query[1:])]
    numbers += [("I", number) for number in (shape.heads // shape.kv_heads, *of_key, _TUNING, 0, shape.length)]
    numbers += [("I", number) for number in (_HEAD_DIM, _HEAD_DIM, shape.heads, *of_key, *of_query)]
    numbers += [("Q", 0), ("Q", 0), ("I", 0), ("Q", 0), ("Q", 0)]  # of sequences of many lengths
    return b"".join(struct.pack(f"<{kind}", value).ljust(16, b"\0") for kind, value in numbers)

"""CK's fmha_fwd_v3 (bf16, gfx950) as the default upstream ships it, compiled here and run on the emulator.

It is no batch-prefill kernel: it stands for the machine code to come, with LDS reads that transpose, wide loads to LDS,
swaps between lanes and packed conversions. O is compared with the float64 reference within the suites' tolerances.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from emulator_child import on_device

from emulator.device import Device
from kernels.buffers import Inputs
from kernels.build import INCLUDE, PROJECT
from kernels.encodings import from_bf16, to_bf16
from kernels.settings import cache_folder
from kernels.toolchains import compile_command, detect, link_command
from kernels.upstream import locate
from matrix.problems import Problem
from tests.gpu.reference import attention
from tests.gpu.tolerances import compare_o

SOURCE = PROJECT / "tests/data/fwd_v3.hip"
CHECKS = dict.fromkeys(("poison", "poison_memory", "late_loads", "lds_races"), True)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both kernels, with and without a causal mask: about a minute of compiling."""
    folder = tmp_path_factory.mktemp("fwd_v3")
    toolchain = detect("embedded", cache=cache_folder())
    (folder / "exported.txt").write_text("{ global: fwd_v3; local: *; };\n")
    commands = [
        compile_command(
            toolchain,
            archs=["gfx950"],
            source=str(SOURCE),
            output=str(folder / "fwd_v3.o"),
            includes=[str(place) for place in (*locate("aiter", cache=cache_folder()).includes, INCLUDE)],
            cuid="0" * 16,
            prefix_map={},
        ),
        link_command(
            toolchain,
            objects=[str(folder / "fwd_v3.o")],
            output=str(folder / "libfwd_v3.so"),
            version_script=str(folder / "exported.txt"),
            soname="libfwd_v3.so",
        ),
    ]
    for command in commands:
        run = subprocess.run(command, env={**os.environ, **toolchain.environment}, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
    return folder / "libfwd_v3.so"


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("seqlen_q", "seqlen_k", "nhead_q", "nhead_k"),
    [(256, 256, 1, 1), (300, 500, 2, 1), (64, 130, 2, 2), (1024, 1024, 1, 1)],
)
@on_device("gfx950", whole=True)
def test_o_agrees_with_the_reference(
    device: Device, library: Path, seqlen_q: int, seqlen_k: int, nhead_q: int, nhead_k: int, causal: bool
) -> None:
    mask = {"mask": "bottom_right", "window_right": 0} if causal else {}
    problem = Problem(
        name="fwd_v3", suite="batch-prefill", tier="full", group="fwd_v3", mode="batch", seqlens_q=(seqlen_q,),
        seqlens_k=(seqlen_k,), nhead_q=nhead_q, nhead_k=nhead_k, **mask,
    )  # fmt: skip
    random = np.random.default_rng([seqlen_q, seqlen_k])
    shapes = ((seqlen_q, nhead_q, 128), (seqlen_k, nhead_k, 128), (seqlen_k, nhead_k, 128))
    bits = [to_bf16(random.uniform(-2, 2, shape)) for shape in shapes]
    q, k, v = (from_bf16(array) for array in bits)
    expected = attention(Inputs(problem=problem, q=(q,), k=(k,), v=(v,)))

    launch = device.load_library(library).fwd_v3
    launch.argtypes = [*[ctypes.c_void_p] * 4, *[ctypes.c_int] * 4, ctypes.c_bool]
    launch.restype = ctypes.c_bool
    buffers = [device.upload(array) for array in (*bits, bits[0])]

    def o() -> np.ndarray:
        device.fill(buffers[3], 0xFF)  # NaN
        assert launch(*(buffer.address for buffer in buffers), seqlen_q, seqlen_k, nhead_q, nhead_k, causal)
        device.synchronize()
        return device.read(buffers[3], np.uint16, shapes[0])

    first = o()
    found = compare_o(problem, from_bf16(first), expected)
    assert found.passed, str(found)
    assert found.worst > 0.02  # the bound isn't so wide that it says nothing
    # nothing depends on what registers and LDS held, on loads that land early, or on the waves' order
    device.configure(**CHECKS, wave_order=1)
    assert np.array_equal(first, o())

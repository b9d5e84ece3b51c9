"""Three small libraries for the emulated gfx950: forward with LSE, its backward, pages of 16 tokens with LSE.

Objects come from the user's cache where they are there; else this compiles for some minutes.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.launch.device import choose
from ckpm.attention.registry import Registry
from ckpm.kernels.families.libraries import libraries

ROOT = Path(__file__).resolve().parents[2]
ARCH = "gfx950"
OF_VARLEN = "key.dtype == 'bf16' and key.hdim_q == 64 and key.mode == 'group'"
SELECTIONS = {
    (
        "--family",
        "fwd",
    ): f"{OF_VARLEN} and key.lse and key.bias == 'no' and not (key.logits or key.dropout or key.skip)",
    ("--family", ",".join(libraries()["bwd_dq_dk_dv"])): f"{OF_VARLEN} and (key.family != 'bwd_dq_dk_dv' or "
    "key.trload and not (key.tile.max_seq_q or key.dpad or key.dropout or key.dbias) and key.bias == 'no')",
    ("--upstream", "ckpm"): "key.dtype == 'bf16' and key.hdim_q == 128 and key.page_size == 16 and key.lse and "
    "key.kv_layout == 'linear' and key.bias == 'no' and key.tile.bm0 == 64 and key.load == 'bload' and not key.dropout",
}


@pytest.fixture(scope="session")
def dispatcher(tmp_path_factory: pytest.TempPathFactory) -> Dispatcher:
    work, registry = tmp_path_factory.mktemp("libraries"), Registry()
    for options, where in SELECTIONS.items():
        command = [sys.executable, "-m", "ckpm", "build", "--arch", ARCH, "--tier", "full", "--work", str(work)]
        subprocess.run([*command, *options, "--where", where], cwd=ROOT, check=True)
    for library in sorted(work.glob(f"build/{ARCH}/*/libckpm.so")):
        registry.add_library(library)
    return Dispatcher(registry, choose("emulator", ARCH))


@pytest.fixture(autouse=True)
def operators(dispatcher: Dispatcher) -> Iterator[None]:
    """The operators launch kernels of these libraries."""
    from ckpm import torch as operators

    operators.dispatch_to(dispatcher)
    yield
    operators.dispatch_to(None)

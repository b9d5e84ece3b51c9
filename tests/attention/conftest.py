"""Libraries of every family that the dispatcher launches, built for the emulated gfx950: the smoke tier of each.

Objects come from the user's cache where they are there; else this compiles for minutes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.launch.device import Device, choose
from ckpm.attention.registry import Registry
from ckpm.kernels.families.libraries import libraries

ROOT = Path(__file__).resolve().parents[2]
ARCH = "gfx950"
# only the kernels with pages of several tokens that the tests call: compiling all of ckpm's takes minutes
PAGED = (
    "key.dtype == 'bf16' and key.page_size == 16 and key.bias == 'no' and key.kv_layout == 'vectorized' and "
    "key.kv_table == 'sglang' and key.hdim_q == 128 and not (key.lse or key.logits or key.dropout)"
)
SPLIT = "key.pipeline == 'qr_async_split' and key.page_size == 1"  # one kernel, with a mask and LSE
ANY_PAGE = "key.page_size in (32, 256, 0) and key.dtype == 'bf16' and key.hdim_q == 128"  # five kernels, with a mask
# one kernel: causal, pages of one token
V3 = "key.pipeline == 'qr_async_trload_v3' and key.dtype == 'bf16' and key.hdim_q == 128 and key.mask == 'causal'"
LATENT = "key.hdim_q == 576 and key.page_size == 1"  # one kernel, with a mask and LSE
# four kernels in the smoke tier: three in batch mode with a mask, one in group mode with bias, dbias and dropout
BACKWARD = (
    "key.dtype == 'bf16' and key.hdim_q == 64 and "
    "(key.family != 'bwd_dq_dk_dv' or key.trload and not key.tile.max_seq_q)"
)
FAMILIES = ("batch_prefill", "fwd", "fwd_pagedkv", "fwd_splitkv", "fwd_appendkv")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """The libraries' files; batch prefill also of ckpm and ckpm-extended: other pages, splits of keys."""
    work = tmp_path_factory.mktemp("libraries")
    command = [sys.executable, "-m", "ckpm", "build", "--arch", ARCH, "--tier", "smoke", "--work", str(work)]
    for family in FAMILIES:
        subprocess.run([*command, "--family", ",".join(libraries()[family])], cwd=ROOT, check=True)
    subprocess.run([*command, "--upstream", "ckpm", "--where", PAGED], cwd=ROOT, check=True)
    extended = " or ".join((SPLIT, ANY_PAGE, LATENT, V3))
    subprocess.run([*command, "--upstream", "ckpm-extended", "--where", extended], cwd=ROOT, check=True)
    subprocess.run([*command, "--family", "bwd_dq_dk_dv", "--where", BACKWARD], cwd=ROOT, check=True)
    return tuple(sorted(work.glob(f"build/{ARCH}/*/libckpm.so")))


@pytest.fixture(scope="session")
def device() -> Device:
    return choose("emulator", ARCH)


@pytest.fixture(scope="session")
def registry(built: tuple[Path, ...]) -> Registry:
    """All of them."""
    registry = Registry()
    for library in built:
        registry.add_library(library)
    return registry


@pytest.fixture(scope="session")
def dispatcher(registry: Registry, device: Device) -> Dispatcher:
    return Dispatcher(registry, device)

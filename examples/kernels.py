"""The kernels that the examples share, by declaration: compiled on demand, once for a user of this machine."""

from __future__ import annotations

from typing import Any

from ckpm import Dispatcher, Instance, Registry, kernel_set
from ckpm.attention.jit.on_demand import on_demand
from ckpm.attention.launch.device import choose
from ckpm.base.rocm_choice import default_device

ARCH = "gfx950"
_BF16: dict[str, Any] = {"dtype": "bf16", "hdim_q": 128}
_PADDED: dict[str, Any] = {"pad": "psskddv"}
_PREFILL = {**_BF16, **_PADDED, "family": "batch_prefill", "mode": "group", "tile": {"bm0": 64}, "dropout": False}
_PREFILL |= {"logits": False, "lse": True, "mask": "mask", "bias": "no"}
_FWD = {**_PADDED, "family": "fwd", "mode": "batch", "hdim_q": 128, "tile": {"bm0": 128, "bn0": 128}, "logits": False}
_FWD |= {"bias": "no", "lse": False, "dropout": False, "skip": False, "mask": "no", "dtype": "bf16"}
_BACKWARD: dict[str, Any] = {"dtype": "bf16", "hdim_q": 64, "mode": "batch"}
SETS: dict[str, dict[str, Any]] = {
    "fwd": _FWD,
    "masks": {**_FWD, "mask": "mask"},
    "split_kv": {**_BF16, **_PADDED, "family": "fwd_splitkv", "mode": "batch", "tile": {"bm0": 64}, "mask": "no",
                 "bias": "no", "logits": False, "paged_kv": False},
    "split_kv_combine": {**_BF16, "family": "fwd_splitkv_combine", "mode": "batch"},
    "append_kv": {**_BF16, **_PADDED, "family": "fwd_appendkv", "rope": "no", "paged_kv": False},
    "bias": {**_PREFILL, "bias": "bias"},
    "dropout": {**_PREFILL, "dropout": True},
    "soft_cap": {**_PREFILL, "logits": True},
    "batch_prefill": {**_PREFILL, "lse": False, "mask": "no"},
    "batch_prefill_128": {**_PREFILL, "lse": False, "mask": "no", "tile": {"bm0": 128}},
    "sinks": {**_PREFILL, "lse": False, "upstream": "ckpm", "page_size": 1, "sink": True, "kv_table": "sglang",
              "load": "gload"},
    "fp8": {**_FWD, "dtype": "fp8bf16", "pad": "pssk", "qscale": "pertensor"},
    "backward_dot": {**_BACKWARD, "family": "bwd_dot_do_o"},
    "backward": {**_BACKWARD, "family": "bwd_dq_dk_dv", "mask": "mask", "bias": "no", "dropout": False,
                 "deterministic": True, "pad": "pd8dv8", "trload": True},
    "backward_convert": {**_BACKWARD, "family": "bwd_convert_dq", "deterministic": True},
}  # fmt: skip


def declare(*names: str) -> tuple[Instance, ...]:
    """Return the kernels of these sets."""
    return tuple(instance for name in names for instance in kernel_set(arch=ARCH, **SETS[name]))


def dispatcher(*names: str, **options: Any) -> Dispatcher:
    """Make a dispatcher over these sets, on a GPU of the arch or the emulator; ``options`` are Dispatcher's."""
    return Dispatcher(Registry(declare(*names)), choose(default_device(), ARCH), compile=on_demand(), **options)

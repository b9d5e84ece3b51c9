"""A request arrives whole at the newest dialect's kernels: template arguments, fields, the stream's settings."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import pytest

from ckpm.attention.launch.c_abi import Library
from ckpm.kernels.abi import KvLayout, KvTable, LaunchArguments, Status
from ckpm.matrix.keys import Key
from tests.build.newest import EIGHT, FIVE, MASK_IMPLS, Compiler, fake, record, units_of
from tests.build.newest_requests import request

TYPES = {
    "fp16": "half,half,half,float,float,half,uint8,float,half,float,half",
    "bf16": "bf16,bf16,bf16,float,float,bf16,uint8,float,bf16,float,bf16",
    "fp8bf16": "fp8,fp8,fp8,float,float,float,uint8,float,fp8,float,bf16",
}
MASK_WORDS = {
    ("simplified", "no"): "simplified none",
    ("simplified", "mask"): "simplified",
    ("generic", "no"): "none",
    ("generic", "causal"): "causal",
    ("generic", "generic"): "window",
}


def arguments_of(key: Key) -> dict[str, str]:
    """A kernel's template arguments as the interface's kernel reports them; numbers are CK's enumerators."""
    tile = key.tile
    block, waves0, waves1, warp0, warp1 = (
        "x".join(str(getattr(tile, name)) for name in names.split())
        for names in ("bm0 bn0 bk0 bn1 bk1 bk0max", "rm0 rn0 rk0", "rm1 rn1 rk1", "wm0 wn0 wk0", "wm1 wn1 wk1")
    )
    numbers = {
        "logits": key.logits,
        "bias": ("no", "bias", "alibi").index(key.bias),
        "bias_grad": 0,
        "lse": key.lse,
        "dropout": key.dropout,
        "qscale": {"no": 0, "pertensor": 1, "kv_blockscale": 3}[key.qscale],
        "occupancy": -1,
        "skip_min_seqlen_q": 0,
        "sink": bool(key.sink),
        "page_size": key.page_size,
        "kv_layout": ("vectorized", "linear").index(str(key.kv_layout)),
        "kv_table": ("vllm", "sglang").index(str(key.kv_table)),
        "load": ("bload", "gload").index(str(key.load)),
        "group_mode": 1,
        "exp2": 1,
        "trload": 0,
        "v_rowmajor": 1,
    }
    return {
        "blocks_per_cu": "2",
        "arch_is_void": "1",
        "block": "256x1x1",
        "lds_bytes": "0",
        "types": TYPES[key.dtype],
        "mask": MASK_WORDS[key.mask_impl, key.mask],
        "tile": block,
        "waves0": waves0,
        "warp_tile0": warp0,
        "waves1": waves1,
        "warp_tile1": warp1,
        "pads": "1x1x1x1",
        "epilogue": ("half" if key.dtype == "fp16" else "bf16") + " m n",
        **{name: str(int(value or 0)) for name, value in numbers.items()},
    }


@pytest.mark.parametrize("mask_impl", MASK_IMPLS)
def test_launch_by_name_runs_kernel_of_name(
    libraries: Mapping[tuple[str, str], Library], samples: Mapping[str, list[Key]], mask_impl: str
) -> None:
    """The named kernel is launched for any request, and is built from the values of its name."""
    library = libraries[mask_impl, FIVE]
    arguments = LaunchArguments(**request(samples[mask_impl][0]))
    for key in samples[mask_impl]:
        fake(library)
        launch = library.launch(arguments, key.name)
        assert (launch.status, launch.kernel, launch.message) == (Status.OK, key.name, "")
        recorded = record(library)
        expected = arguments_of(key)
        assert {name: recorded[name] for name in expected} == expected


# The argument of CK that each field of a problem goes to, where the names differ.
RENAMED = {
    **{name: f"{name}_ptr" for name in ("q", "k", "v", "bias", "q_descale", "k_descale", "v_descale", "rand_val")},
    **{name: f"{name}_ptr" for name in ("lse", "o", "seqstart_q", "sink")},
    "page_size": "page_block_size",
    "window_left": "window_size_left",
    "window_right": "window_size_right",
    "store_randval": "s_randval",
    "dropout_seed": "drop_seed",
    "dropout_offset": "drop_offset",
    "block_stride_kv_descale": "nblock_stride_kv_block_descale",
    "nhead_stride_kv_descale": "nhead_stride_kv_block_descale",
}
TRAITS_ONLY = {
    *("struct_bytes", "abi_version", "data_type", "bias_type", "qscale_type", "is_group_mode", "is_v_rowmajor"),
    *("has_logits_soft_cap", "has_lse", "has_dropout", "has_sink", "split_keys", "o_acc", "lse_acc"),
}


@pytest.mark.parametrize("layout", list(KvLayout))
@pytest.mark.parametrize("table", list(KvTable))
def test_every_field_reaches_its_argument(
    libraries: Mapping[tuple[str, str], Library], samples: Mapping[str, list[Key]], layout: Any, table: Any
) -> None:
    """All fields hold different values; each is found in the argument that it is for, and no argument is left over."""
    library, key = libraries["simplified", EIGHT], samples["simplified"][0]
    values: dict[str, Any] = {}
    for index, (name, kind) in enumerate(list(LaunchArguments.kinds().items())[3:], start=1):
        pointer = kind in (ctypes.c_void_p, ctypes.c_uint64)
        values[name] = (index << 36) + index if pointer else index / 4 if kind is ctypes.c_float else 100_000 + index
    values |= {"data_type": "bf16", "nhead_q": 96, "nhead_k": 12, "page_size": 2048, "kv_layout": layout}
    values |= {"kv_table": table, "mask_type": 3, "bias_type": 1, "qscale_type": 2, "store_randval": 1, "batch": 77}
    values |= {"split_keys": 0, "o_acc": 0, "lse_acc": 0}  # this CK does not know splits over keys
    fake(library)
    launch = library.launch(LaunchArguments(**values), key.name)
    assert (launch.status, launch.milliseconds) == (Status.OK, 1.5)
    recorded = record(library)
    expected = {
        f"args.{RENAMED.get(name, name)}": f"{value:.9g}" if isinstance(value, float) else str(int(value))
        for name, value in values.items()
        if name not in TRAITS_ONLY | {"kv_layout", "kv_table", "stream", "warmup", "repeat"}
    }
    # CK counts these two the other way round
    expected["args.kv_memory_layout"] = "0" if layout is KvLayout.VECTORIZED else "1"
    expected["args.kv_lookup_table"] = "0" if table is KvTable.VLLM_2D else "1"
    assert {name: value for name, value in recorded.items() if name.startswith("args.")} == expected
    tiles = -(-values["max_seqlen_q"] // key.tile.bm0) * -(-values["hdim_v"] // key.tile.bn1)
    assert recorded["grid"] == f"96x{tiles}x77"
    stream = {name: recorded[name] for name in ("stream", "timed", "warmup", "repeat")}
    assert stream == {
        "stream": str(values["stream"]),
        "timed": "1",
        "warmup": str(values["warmup"]),
        "repeat": str(values["repeat"]),
    }


def test_window_near_largest_int_reaches_kernel_without_overflow(
    libraries: Mapping[tuple[str, str], Library], samples: Mapping[str, list[Key]]
) -> None:
    """A kernel adds a row's number, which is below 2^30, to the window's bounds."""
    library = libraries["simplified", EIGHT]
    fake(library)
    largest = {"window_left": 2**31 - 1, "window_right": 2**31 - 1}
    library.launch(LaunchArguments(**request(samples["simplified"][-1]) | largest))
    recorded = record(library)
    assert [recorded[f"args.window_size_{side}"] for side in ("left", "right")] == [str(2**30 - 1)] * 2


def test_launch_is_untimed_unless_repeated(
    libraries: Mapping[tuple[str, str], Library], samples: Mapping[str, list[Key]]
) -> None:
    library = libraries["simplified", EIGHT]
    fake(library)
    launch = library.launch(LaunchArguments(**request(samples["simplified"][-1])))
    assert (launch.status, launch.milliseconds, record(library)["timed"]) == (Status.OK, 0, "0")


@pytest.mark.parametrize(("arch", "loads"), [("gfx90a", {"bload"}), ("gfx942", {"bload", "gload"})])
def test_device_code_of_64_bit_loads_is_guarded(
    compiler: Compiler, libraries: object, samples: Mapping[str, list[Key]], arch: str, loads: set[str]
) -> None:
    """gload kernels have device code on gfx94x and gfx950 alone; host code has them everywhere."""
    guarded_loads = set()
    for unit in units_of(samples["generic"]):
        load_word = unit.name
        text = compiler.preprocess(compiler.folder / "generic" / FIVE / f"{unit.name}.hip", arch)
        count = text.count("float fmha_batch_prefill_<ckpm::k")
        assert count in (0, len(unit.keys))
        guarded_loads |= {load_word} if count else set()
    assert guarded_loads == loads

"""September's fwd, fwd_pagedkv and fwd_splitkv: template arguments by kernels' names, dispatch by upstream's rules.

The rules are those of fmha_fwd.py, fmha_pagedkv_prefill.py and fmha_fwd_splitkv.py of September 2026, worked out here
anew. Text is compiled against declared interfaces (tests/data/interface_2026).
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ckpm.attention.launch.c_abi import Library
from ckpm.kernels.abi import FwdArguments, LaunchArguments, Mask, Status
from ckpm.kernels.families import spellings
from ckpm.kernels.families.family import INCLUDE_FWD
from ckpm.kernels.families.render import Unit, instance_text, render
from ckpm.matrix.dialects import dialect
from ckpm.matrix.keys import Key
from ckpm.matrix.selection import Selection, select
from tests.build.newest import INTERFACE, Compiler, fake, record

SEPTEMBER = "rocm-libraries-2026-09"
FEATURES = spellings.features(SEPTEMBER)
OCCUPANCY = "-DINTERFACE_2026_OCCUPANCY"
PLAIN = "not (key.logits or key.dropout or key.skip) and key.bias == 'no' and key.hdim_q in (64, 128)"
WHERE = {
    "fwd": (f"{PLAIN} and (key.dtype == 'bf16' and key.lse or key.dtype == 'fp8bf16' and key.qscale != 'blockscale')",),
    "fwd_pagedkv": (f"{PLAIN} and key.dtype != 'fp16'",),
    "fwd_splitkv": (
        f"{PLAIN} and key.family == 'fwd_splitkv' and key.dtype != 'fp16'"
        " or key.family == 'fwd_splitkv_combine' and key.hdim_q <= 128",
    ),
}
SCALES = ("no", "pertensor", "blockscale", "kv_blockscale", "mx")
VECTOR = {64: 64, 128: 128}  # what kernels load at once along head dim, unless they pad it


def keys_of(family: str, archs: Sequence[str] = ("gfx942", "gfx950")) -> list[Key]:
    families = (family, "fwd_splitkv_combine") if family == "fwd_splitkv" else (family,)
    return select(dialect(SEPTEMBER), Selection(archs=tuple(archs), families=families, where=WHERE[family]))


def is_padded(key: Key, part: str) -> bool:
    return part in re.findall("sk|dv|s|d", key.pad.removeprefix("p") if key.pad != "npad" else "")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Library]:
    compiler = Compiler(tmp_path_factory.mktemp("forward"), (INTERFACE, INCLUDE_FWD))
    runtime = compiler.compile(INTERFACE / "fake_runtime.hip")
    libraries = {}
    for family in WHERE:
        keys = keys_of(family)
        units = [Unit(name, tuple(key for key in keys if key.family == name)) for name in {key.family for key in keys}]
        files = render(keys, units, SEPTEMBER, FEATURES, compiler.folder / family)
        objects = [compiler.compile(file, OCCUPANCY) for group in files.values() for file in group]
        libraries[family] = compiler.link(f"lib{family}", [*objects, runtime], FwdArguments)
    return libraries


def test_trait_s_arguments_are_those_of_the_name() -> None:
    """A trait names fields in the header's order; September's last one is the tile's occupancy."""
    start = "hdim dtype group bm0 bn0 bk0 bn1 bk1 bk0max row pipeline logits mask bias lse"  # all three
    ends = {
        "fwd": "dropout scale s sk d dv trload skip sink occupancy",
        "fwd_pagedkv": "paged quant s sk d dv skip sink occupancy",
        "fwd_splitkv": "quant paged sink s sk d dv occupancy",
    }
    for family, end in ends.items():
        for key in keys_of(family):
            if key.family != family:
                continue
            match = re.search(
                rf"Dispatch\s*= {family.replace('fwd', 'fmha_fwd')}_traits_<(.*)>;", instance_text(key, FEATURES)
            )
            assert match
            arguments = [word.strip().split("::")[-1] for word in match[1].split(", ")]
            named = dict(zip(f"{start} {end}".split(), arguments, strict=True))
            expected: dict[str, Any] = {
                "group": key.mode == "group", "logits": key.logits, "lse": key.lse, "dropout": key.dropout,
                "trload": key.trload, "skip": key.skip, "sink": key.sink, "paged": key.paged_kv,
                "quant": key.qscale == "pertensor", "row": key.vlayout == "row",
                **{part: is_padded(key, part) for part in ("s", "sk", "d", "dv")},
            }  # fmt: skip
            assert {name: named[name] for name in named.keys() & expected.keys()} == {
                name: str(bool(value)).lower() for name, value in expected.items() if name in named
            }
            numbers = {
                name: getattr(key.tile, name) for name in ("bm0", "bn0", "bk0", "bn1", "bk1", "bk0max", "occupancy")
            }
            assert {name: int(named[name]) for name in numbers} == numbers
            scale = {"no": "NO_SCALE", "pertensor": "PERTENSOR"}[key.qscale]
            assert named.get("scale", scale) == scale


@pytest.mark.parametrize(("name", "end"), [("rocm-libraries-2026", ""), (SEPTEMBER, ", false, false")])
def test_problem_of_september_s_fwd_names_two_flags(name: str, end: str) -> None:
    """A double KV buffer and progressive loads, which gfx125 alone has; every fwd kernel, V3 included, names them."""
    keys = select(dialect(name), Selection(archs=("gfx942", "gfx950"), families=("fwd",), where=WHERE["fwd"]))
    assert {key.pipeline for key in keys} == {"qr", "qr_async", "qr_async_trload", "qr_async_trload_v3"}
    for key in keys:
        assert re.search(
            rf"BlockFmhaPipelineProblem<[^;]*, Traits{end}>;", instance_text(key, spellings.features(name))
        )


def request(key: Key, **changes: Any) -> dict[str, Any]:
    """A problem that the kernel serves, then changed."""
    address, mode = 4096, key.mode == "group"
    needed = ["q", "k", "v", "o", "lse"] + ["seqstart_q", "seqstart_k"] * mode
    needed += ["lse_acc", "o_acc"] * (key.family == "fwd_splitkv") + ["block_table"] * bool(key.paged_kv)
    masks = {"no": Mask.NONE, "mask": Mask.BOTTOM_RIGHT, "causal": Mask.BOTTOM_RIGHT}
    return {
        **{name: address * at for at, name in enumerate(needed, start=1)},
        "data_type": key.dtype, "is_group_mode": mode, "is_v_rowmajor": key.vlayout == "row", "batch": 2,
        "nhead_q": 4, "nhead_k": 2, "seqlen_q": 512, "max_seqlen_q": 512, "seqlen_k": 1024, "hdim_q": key.hdim_q,
        "hdim_v": key.hdim_v, "mask_type": masks[key.mask], "has_lse": bool(key.lse), "scale_s": 1.0, "scale_p": 1.0,
        "scale_o": 1.0, "do_fp8_static_quant": key.family != "fwd" and key.qscale == "pertensor",
        "num_splits": 3 if key.family == "fwd_splitkv" else 0, "page_block_size": 256 if key.paged_kv else 0, **changes,
    }  # fmt: skip


def choose(keys: Sequence[Key], p: Mapping[str, Any], device: str, units: int) -> str | None:
    """The first kernel of upstream's nest (device, dtype, head dims, conditions); V3 before others."""
    main = [key for key in keys if key.family != "fwd_splitkv_combine"]
    for v3 in (True, False):
        if v3 and p["max_seqlen_q"] <= 1:
            continue
        beside = [key for key in main if (key.pipeline == "qr_async_trload_v3") == v3]
        trait = next(
            (
                trait
                for trait in ("gfx950", "gfx9")
                if device.startswith(trait) and any(key.arch_trait == trait for key in beside)
            ),
            None,
        )
        beside = [key for key in beside if (key.arch_trait, key.dtype) == (trait, p["data_type"])]
        levels = dict.fromkeys((key.hdim_q, key.hdim_v) for key in beside)
        level = next((dims for dims in levels if p["hdim_q"] <= dims[0] and p["hdim_v"] <= dims[1]), None)
        beside = [key for key in beside if (key.hdim_q, key.hdim_v) == level]
        for key in beside:
            if serves(key, p, units, max(other.tile.bm0 for other in beside)):
                no_lse = key.family == "fwd_splitkv" and key.dtype == "fp8"  # its combine kernels store none
                return None if no_lse and p["has_lse"] else key.name
    return None


def serves(key: Key, p: Mapping[str, Any], units: int, largest: int) -> bool:
    whole, rows = p["seqlen_k"] % key.tile.bn0 == 0, key.tile.bm0
    blocks = p["batch"] * p["nhead_q"] * -(-p["max_seqlen_q"] // 64)
    tests = [
        (key.mode == "group") == p["is_group_mode"],
        (key.mask == "no") == (p["mask_type"] == Mask.NONE),
        not key.sink,
        key.lse == p["has_lse"] or key.family == "fwd_splitkv",
        (key.qscale == "pertensor") == p["do_fp8_static_quant"],
        is_padded(key, "d") or p["hdim_q"] % VECTOR[key.hdim_q] == 0,
        is_padded(key, "dv") or p["hdim_v"] % VECTOR[key.hdim_q] == 0,
        bool(key.paged_kv) == ("block_table" in p) or key.family == "fwd",
    ]
    if key.family == "fwd":  # tiles of 64 rows have conditions of their own
        longest = p["max_seqlen_q"] if key.mode == "group" else p["seqlen_q"]
        tests.append(rows in (largest, 64) or longest <= rows)
        tests.append(key.tile.when == "always" or blocks <= units)
    if key.mode == "batch" and not key.pipeline.startswith("qr_async"):
        tests.append(is_padded(key, "s") or p["seqlen_q"] % rows == 0)
    if key.mode == "batch" and not key.pipeline.startswith("qr_async_trload"):
        unknown = "cu_seqlen_k" in p if key.family == "fwd" else "seqlen_k_ptr" in p
        plain = not unknown and whole and (p["seqlen_k"] != 0 or key.family != "fwd")
        # qr_async's padded kernels take the rest, the others' all
        tests.append(plain != is_padded(key, "sk") if key.pipeline == "qr_async" else plain or is_padded(key, "sk"))
    return all(tests)


def kernels_of_abi(keys: Sequence[Key]) -> list[Key]:
    """The kernels that requests of the C ABI reach: it poses no sink, and fwd's scales are tensors."""
    main = [key for key in keys if key.family != "fwd_splitkv_combine" and not key.sink]
    return [key for key in main if key.family != "fwd" or key.qscale == "no"]


def requests(keys: Sequence[Key], count: int) -> Iterator[dict[str, Any]]:
    draw = random.Random(11)
    main = kernels_of_abi(keys)
    for at in range(count):
        key = main[at % len(main)]
        seqlen_q = draw.choice((1, 16, 31, 32, 64, 128, 200, 512))
        changes: dict[str, Any] = {
            "seqlen_q": seqlen_q, "max_seqlen_q": seqlen_q, "seqlen_k": draw.choice((0, 100, 128, 1024, 1056)),
            "batch": draw.choice((1, 16)), "hdim_q": key.hdim_q - draw.choice((0, 0, 8)),
        }  # fmt: skip
        if key.mode == "batch" and draw.random() < 0.2:
            changes["cu_seqlen_k" if key.family == "fwd" else "seqlen_k_ptr"] = 1 << 20
        if key.family == "fwd_splitkv":
            changes["has_lse"] = draw.random() < 0.5
        yield request(key, **changes)


@pytest.mark.parametrize("family", WHERE)
def test_dispatch_takes_the_first_kernel_of_upstream_s_rules(family: str, libraries: dict[str, Library]) -> None:
    keys, chosen = keys_of(family), set()
    for number, problem in enumerate(requests(keys, 600)):
        device = ("gfx950:sramecc+", "gfx942:xnack-")[number % 2]
        units = (80, 304)[number // 2 % 2]
        fake(libraries[family], cus=units, name=device)
        launch = libraries[family].launch(FwdArguments(**problem))
        expected = choose(keys, problem, device, units)
        assert (launch.kernels[:1] or (None,))[0] == expected, (problem, device, units)
        chosen.add(expected)
        if expected and family != "fwd_splitkv":
            described = record(libraries[family])
            key = next(key for key in keys if key.name == expected)
            tile = "x".join(str(getattr(key.tile, name)) for name in ("bm0", "bn0", "bk0", "bn1", "bk1", "bk0max"))
            assert (described["tile"], described["group_mode"]) == (tile, str(int(key.mode == "group")))
            assert described["traits"].split("x")[-1] == "0"  # no sink
            assert ("V3" in described["kernel"]) == (key.pipeline == "qr_async_trload_v3")
    taken = {(key.arch_trait, key.pipeline, key.tile.when) for key in keys if key.name in chosen}
    assert taken == {(key.arch_trait, key.pipeline, key.tile.when) for key in kernels_of_abi(keys)}


def test_scale_tensors_of_fwd_are_refused_by_name(libraries: dict[str, Library]) -> None:
    key = next(key for key in keys_of("fwd") if key.dtype == "fp8bf16" and key.qscale == "pertensor" and not key.sink)
    launch = libraries["fwd"].launch(FwdArguments(**request(key, do_fp8_static_quant=1)))
    assert launch.status == Status.BAD_PROBLEM
    assert launch.message.startswith("do_fp8_static_quant must be 0: scales are tensors")


def test_may_s_text_has_no_occupancy(tmp_path: Path) -> None:
    may = "rocm-libraries-2026"
    keys = select(dialect(may), Selection(archs=("gfx950",), families=("fwd_pagedkv",), where=WHERE["fwd_pagedkv"]))[:2]
    files = render(keys, [Unit("may", tuple(keys))], may, spellings.features(may), tmp_path)
    compiler = Compiler(tmp_path, (INTERFACE, INCLUDE_FWD))
    for group in files.values():
        for file in group:
            compiler.compile(file)
    with pytest.raises(AssertionError, match="too few template arguments"):
        compiler.compile(files["dispatch"][0], OCCUPANCY)


@pytest.mark.parametrize("family", ["batch_prefill", *WHERE])
def test_smoke_tier_is_built_against_declared_interface(family: str, tmp_path: Path) -> None:
    families = (family, "fwd_splitkv_combine") if family == "fwd_splitkv" else (family,)
    keys = select(dialect(SEPTEMBER), Selection(archs=("gfx942", "gfx950"), families=families, tier="smoke"))
    units = [Unit(name, tuple(key for key in keys if key.family == name)) for name in {key.family for key in keys}]
    compiler = Compiler(tmp_path, (INTERFACE, INCLUDE_FWD))
    files = render(keys, units, SEPTEMBER, FEATURES, tmp_path / "sources")
    objects = [compiler.compile(file, OCCUPANCY) for group in files.values() for file in group]
    arguments = LaunchArguments if family == "batch_prefill" else FwdArguments
    library = compiler.link("libsmoke", [*objects, compiler.compile(INTERFACE / "fake_runtime.hip")], arguments)
    assert sorted(library.kernels) == sorted(key.name for key in keys)
    assert (library.dialect, library.family) == (SEPTEMBER, family)

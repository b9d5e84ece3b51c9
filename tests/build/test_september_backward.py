"""September's bwd: its texts compile against the declared interface, and its dispatch follows upstream's rules.

The rules are those of fmha_bwd.py of September 2026, worked out here anew. A library refuses launches, because its C
ABI has no workspace. tests/data/interface_2026/backward_calls.hip calls the dispatch without it.
"""

from __future__ import annotations

import ctypes
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ckpm.attention.launch.c_abi import Library
from ckpm.kernels.abi import Bias, BwdArguments, Mask, Status
from ckpm.kernels.families import spellings
from ckpm.kernels.families.family import INCLUDE_BWD
from ckpm.kernels.families.render import Unit, instance_text, render
from ckpm.matrix.dialects import dialect
from ckpm.matrix.keys import Key
from ckpm.matrix.selection import Selection, select
from tests.build.newest import INTERFACE, Compiler, fake

SEPTEMBER = "rocm-libraries-2026-09"
FIRST, MAIN, LAST = FAMILIES = ("bwd_dot_do_o", "bwd_dq_dk_dv", "bwd_convert_dq")
PLAIN = (
    f"key.family != '{MAIN}' or key.dtype == 'bf16' and key.bias == 'no' and key.dropout_impl != 'wg16_storerandval'"
    " and key.dpad == key.dvpad"
)


def keys_of(name: str = SEPTEMBER, *where: str, tier: str = "full") -> list[Key]:
    return select(dialect(name), Selection(archs=("gfx942", "gfx950"), families=FAMILIES, where=where, tier=tier))


KEYS = keys_of(SEPTEMBER, PLAIN, "key.dtype == 'bf16' and key.hdim_q in (64, 128)")


def build(compiler: Compiler, keys: Sequence[Key], name: str = SEPTEMBER) -> Library:
    units = [Unit(family, tuple(key for key in keys if key.family == family)) for family in FAMILIES]
    files = render(keys, units, name, spellings.features(name), compiler.folder / "sources")
    sources = [file for group in files.values() for file in group]
    sources += [INTERFACE / "backward_calls.hip", INTERFACE / "fake_runtime.hip"]
    return compiler.link("libbackward", [compiler.compile(source) for source in sources], BwdArguments)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return build(Compiler(tmp_path_factory.mktemp("backward"), (INTERFACE, INCLUDE_BWD)), KEYS)


def request(key: Key, **changes: Any) -> dict[str, Any]:
    """A problem that the kernel serves, then changed."""
    return {
        "data_type": key.dtype, "is_group_mode": key.mode == "group", "batch": 2, "nhead_q": 4, "nhead_k": 2,
        "seqlen_q": 512, "max_seqlen_q": 512, "seqlen_k": 1024, "max_seqlen_k": 1024, "hdim_q": key.hdim_q,
        "hdim_v": key.hdim_v, "mask_type": Mask.NONE if key.mask == "no" else Mask.BOTTOM_RIGHT,
        "bias_type": {"no": Bias.NONE, "bias": Bias.ELEMENTWISE, "alibi": Bias.ALIBI}[key.bias],
        "has_dbias": bool(key.dbias), "has_dropout": key.dropout_impl != "no",
        "store_randval": key.dropout_impl == "wg16_storerandval", "is_deterministic": bool(key.deterministic),
        **changes,
    }  # fmt: skip


def requests(count: int) -> Iterator[dict[str, Any]]:
    """Lengths around each limit; in group mode seqlen_q and seqlen_k are the sums of all sequences."""
    draw = random.Random(5)
    main = [key for key in KEYS if key.family == MAIN]
    for at in range(count):
        key = main[at % len(main)]
        queries, keys = draw.choice((1, 16, 17, 32, 33, 64, 100, 512)), draw.choice((100, 256, 257, 1024))
        batch = 1 + (key.mode == "group")
        yield request(
            key, seqlen_q=batch * queries, max_seqlen_q=queries, seqlen_k=batch * keys, max_seqlen_k=keys,
            hdim_q=key.hdim_q - draw.choice((0, 0, 8, 3)), hdim_v=key.hdim_v - draw.choice((0, 0, 8, 3)),
        )  # fmt: skip


def choose(keys: Sequence[Key], p: Mapping[str, Any], device: str) -> Key | None:
    """The first kernel of upstream's nest: device, dtype, head dims, tiles for few queries before others."""
    main = [key for key in keys if (key.family, key.arch_trait) == (MAIN, device)]
    level = next((key.hdim_q for key in main if max(p["hdim_q"], p["hdim_v"]) <= key.hdim_q), None)
    level_keys = sorted((key for key in main if key.hdim_q == level), key=lambda key: key.tile.max_seq_q or 10**6)
    return next((key for key in level_keys if serves(key, p)), None)


def serves(key: Key, p: Mapping[str, Any]) -> bool:
    longest = "max_" if key.mode == "group" else ""
    few_queries = not key.tile.max_seq_q or p[f"{longest}seqlen_q"] <= key.tile.max_seq_q
    few_keys = (key.trload, key.hdim_q, key.tile.bn0, key.tile.max_seq_q) != (True, 128, 128, 0)
    own = request(key)
    return (
        all(p[name] == own[name] for name in ("is_group_mode", "mask_type", "bias_type", "has_dbias", "has_dropout"))
        and all(p[name] == own[name] for name in ("store_randval", "is_deterministic"))
        and p["hdim_q"] % (key.dpad or key.hdim_q) == 0
        and p["hdim_v"] % (key.dvpad or key.hdim_v) == 0
        and few_queries
        and (few_keys or p[f"{longest}seqlen_k"] <= 256)
    )


def pad(**lengths: bool) -> str:
    return "p" + "".join(name for name, padded in lengths.items() if padded) if any(lengths.values()) else "npad"


def stages(main: Key, p: Mapping[str, Any]) -> list[str]:
    """The kernels of a launch: rows of Q are padded but for whole blocks of 64 in batch mode."""
    padded = main.mode == "group" or main.tile.max_seq_q != 0 or p["seqlen_q"] % 64 != 0
    start, end = f"d{main.hdim_q}_{main.dtype}_b64_{main.mode}_o2", f"_{main.arch_trait}"
    split = "deterministic" if main.deterministic else "ndeterministic"
    first = f"fmha_{FIRST}_{start}_{pad(s=padded, dv=bool(main.dvpad))}{end}"
    last = f"fmha_{LAST}_{start}_{pad(s=padded, d=bool(main.dpad))}_{split}{end}"
    return [first, main.name] if main.tile.max_seq_q else [first, main.name, last]


def test_dispatch_takes_the_stages_of_upstream_s_rules(library: Library) -> None:
    library.abi.ckpm_fake_backward.argtypes = [ctypes.POINTER(BwdArguments)]
    library.abi.ckpm_fake_record.restype = ctypes.c_char_p
    taken = set()
    for number, problem in enumerate(requests(1200)):
        device = ("gfx950:sramecc+", "gfx942:xnack-")[number % 2]
        fake(library, name=device)
        served = library.abi.ckpm_fake_backward(BwdArguments(**problem))
        main = choose(KEYS, problem, "gfx950" if device.startswith("gfx950") else "gfx9")
        assert served == (main is not None), (problem, device)
        if main is not None:
            expected = stages(main, problem)
            assert library.abi.ckpm_fake_record().decode().split(",") == expected, (problem, device)
            # the interface's kernels clear the workspace by a kernel of their own in group mode
            assert library.abi.ckpm_fake_launches() == 1 + len(expected) + (main.mode == "group")
            taken.add((main.arch_trait, main.mode, main.tile.word))
    assert taken == {(key.arch_trait, key.mode, key.tile.word) for key in KEYS if key.family == MAIN}


def test_launch_is_refused_by_name_for_its_workspace(library: Library) -> None:
    launch = library.launch(BwdArguments(**request(next(key for key in KEYS if key.family == MAIN))))
    assert (launch.status, launch.kernels) == (Status.BAD_PROBLEM, ())
    assert launch.message == (
        f"dq_acc can't hold dQ: kernels of {SEPTEMBER} accumulate it in a workspace that ckpm_bwd.h has no fields for. "
        "Launch a library of the upstream aiter"
    )


TRAITS = {
    FIRST: "hdim dtype group s dv",
    MAIN: "hdim dtype group mask dropout bias dbias dpad dvpad deterministic trload max_seq_q bn0",
    LAST: "hdim dtype group s d deterministic",
}


def test_trait_s_arguments_are_those_of_the_name() -> None:
    features = spellings.features(SEPTEMBER)
    for key in KEYS:
        match = re.search(r"Dispatch = \w+_traits_<(.*)>;", instance_text(key, features))
        assert match
        arguments = re.split(r", (?![^<]*>)", match[1])
        named = dict(zip(TRAITS[key.family].split(), arguments, strict=True))
        pads = re.findall("dv|d|s", key.pad) if key.pad != "npad" else []
        expected = {
            "hdim": key.hdim_q, "dtype": "FmhaBwdBf16", "group": key.mode == "group", "bn0": key.tile.bn0,
            "deterministic": key.deterministic, "s": "s" in pads, "d": "d" in pads, "dv": "dv" in pads,
            "dpad": key.dpad, "dvpad": key.dvpad, "dbias": False, "trload": key.trload, "max_seq_q": key.tile.max_seq_q,
        }  # fmt: skip
        for name in named.keys() & expected.keys():
            value = expected[name]
            assert named[name] == (str(value).lower() if isinstance(value, bool) else str(value)), (key.name, name)


def test_may_s_and_september_s_conditions_part_in_group_mode(tmp_path: Path) -> None:
    """Facts of both: May asked a sum of lengths in group mode, and has no tiles for few queries there."""
    texts = {}
    for name in ("rocm-libraries-2026", SEPTEMBER):
        keys = keys_of(name, PLAIN, "key.dtype == 'bf16' and key.hdim_q in (64, 128) and key.mode == 'group'")
        files = render(keys, [], name, spellings.features(name), tmp_path / name)
        texts[name] = files["dispatch"][0].read_text()
    limits = {name: set(re.findall(r"t\.\w*seqlen_\w <= \d+", text)) for name, text in texts.items()}
    assert limits["rocm-libraries-2026"] == {"t.seqlen_k <= 256"}
    assert limits[SEPTEMBER] == {"t.max_seqlen_k <= 256", "t.max_seqlen_q <= 16", "t.max_seqlen_q <= 32"}


@pytest.mark.parametrize("name", ["rocm-libraries-2026", SEPTEMBER])
def test_smoke_tier_is_built_against_declared_interface(name: str, tmp_path: Path) -> None:
    keys = keys_of(name, tier="smoke")
    library = build(Compiler(tmp_path, (INTERFACE, INCLUDE_BWD)), keys, name)
    assert sorted(library.kernels) == sorted(key.name for key in keys)
    assert (library.dialect, library.family) == (name, MAIN)


def test_november_s_text_is_not_of_this_interface(tmp_path: Path) -> None:
    """Until 2026 D was not followed by LSE's type, and conversion counted tiles by a template argument."""
    november = "ck-2025-11"
    keys = keys_of(november, tier="smoke")[:1]
    files = render(
        keys_of(november, tier="smoke"), [Unit("unit", tuple(keys))], november, spellings.features(november), tmp_path
    )
    with pytest.raises(AssertionError, match="template argument"):
        Compiler(tmp_path, (INTERFACE, INCLUDE_BWD)).compile(files["units"][0])

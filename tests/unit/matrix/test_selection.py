"""Conditions of a selection combine with AND. Shards split it evenly. An empty selection names what emptied it."""

from __future__ import annotations

import functools
import os
import random
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpm.base.errors import UsageError
from ckpm.commands import parse
from ckpm.matrix import dialects
from ckpm.matrix import selection as selections
from ckpm.matrix.dialects import dialect, dialect_names
from ckpm.matrix.keys import Key
from ckpm.matrix.options import selection_from
from ckpm.matrix.selection import Selection, as_options, parse_shard, profiles, select_some, shard_of, take_shard, tiers
from tests.unit.enumerated import select_keys
from tests.unit.shared import table_complaint

GFX950 = ("gfx950",)


def chosen(name: str = "ck-2025-11", **fields: Any) -> list[Key]:
    return select_keys(name, Selection(**{"archs": GFX950, **fields}))


@functools.cache
def newest() -> list[Key]:
    return chosen("rocm-libraries-2026")


def test_conditions_combine_with_and(tmp_path: Path) -> None:
    file = tmp_path / "keep.py"
    file.write_text("def keep(key):\n    return key.lse\n")
    fields: dict[str, Any] = {
        "receipt": 200,
        "profile": "aiter_group",
        "filters": ("*_fp16_*", "*_nlogits_*"),
        "where": ("key.tile.bm0 == 64", "key.bias == 'no'"),
        "filter_files": (file,),
    }
    together = {key.name for key in chosen(**fields)}
    alone = [{key.name for key in chosen(**{name: value})} for name, value in fields.items()]
    assert together == set.intersection(*alone)
    assert len(together) == 4  # group mode, fp16, one tile, no bias, no soft cap, lse: mask x dropout


def test_options_of_summary_select_same_kernels(tmp_path: Path) -> None:
    """Remedies name them: a person pastes them into a shell."""
    options = ["--arch", "gfx942,gfx950", "--family", "batch_prefill", "--receipt", "200", "--mask", "generic"]
    options += ["--tier", "full", "--profile", "aiter_group", "--filter", "*_d128_*", "--filter", "*_fp16_*"]
    options += ["--filter", "d128", "--where", "key.bias in ('no', 'alibi'), key.lse", "--where", 'key.bias == "no"']
    options += ["--where", """key.bias != "it's" and key.name != '$HOME!'""", "--shard", "1/2"]
    _, selection = selection_from(parse(["list", *options]))
    assert shlex.split(as_options(selection.summary())) == options
    file = tmp_path / "keep it.py"
    file.write_text("def keep(key): return True")
    _, selection = selection_from(parse(["list", "--filter-file", str(file), "--shard", "1/2"]))
    assert as_options(selection.summary()).endswith("--tier full --filter-file 'keep it.py' --shard 1/2")


def test_filters_are_case_sensitive_globs_over_whole_name() -> None:
    assert len(chosen(filters=("*_fp16_*",))) == 192
    assert chosen(filters=("*_FP16_*",)) == []
    assert chosen(filters=("fp16",)) == []
    assert len(chosen(filters=("fmha_batch_prefill_d128_[fb]?16_*",))) == 384


def test_gload_kernel_follows_its_bload_twin() -> None:
    # upstream's --filter looks at the bload name alone: a filtered library still serves pools over 2 GB
    chosen_keys = chosen("rocm-libraries-2026", filters=("*_ps16_bload_b128*_nmask_*_linear_vllm",))
    loads = [key.load for key in chosen_keys]
    assert loads.count("gload") == loads.count("bload") == len(loads) / 2 > 0
    twins = {key.name.replace("_gload_", "_bload_") for key in chosen_keys if key.load == "gload"}
    assert twins == {key.name for key in chosen_keys if key.load == "bload"}


def test_glob_can_name_gload_kernels_alone() -> None:
    chosen_keys = chosen("rocm-libraries-2026", filters=("*_gload_*",))
    assert {key.load for key in chosen_keys} == {"gload"}
    assert len(chosen_keys) == sum(key.load == "gload" for key in newest())


def test_large_pages_have_no_twin_to_follow() -> None:
    assert {key.load for key in chosen("rocm-libraries-2026", filters=("*_ps1024_bload_*",))} == {"bload"}


def test_archs_are_united_and_keep_order_of_emission() -> None:
    assert chosen(archs=("gfx90a", "gfx942", "gfx950")) == chosen()
    assert chosen(archs=("gfx1100", "gfx950")) == chosen()
    assert chosen(archs=("gfx1100", "gfx1201")) == []


# The profiles by their meaning, as sets of the 384 kernels of November 2025 (2 dtypes, 4 pairs of logits and bias, of
# which PyTorch takes (off, no) and (off, bias), FA (on, no), (off, no) and (off, alibi); a third is group).
PROFILES = {
    "ck_default": 384,
    "ck_extended": 384,
    "flash_fwd": 288,
    "flash_bwd": 0,
    "pytorch": 192,
    "aiter_batch": 256,
    "aiter_group": 128,
    "aiter_bwd_batch": 0,
    "aiter_bwd_group": 0,
    "aiter_cpp": 384,
    "fp32_all": 0,
    "fp32_min": 0,
    "fp8_test": 0,
    "all": 384,
}


@pytest.mark.parametrize(("profile", "count"), PROFILES.items())
def test_profile_selects_its_count_of_kernels(profile: str, count: int) -> None:
    assert len(chosen(profile=profile)) == count


def test_no_profile_is_untested() -> None:
    assert set(profiles()) == PROFILES.keys()


def test_profiles_of_newest_dialect() -> None:
    by_dtype = sum(key.dtype == "fp8bf16" for key in newest())
    assert len(chosen("rocm-libraries-2026", profile="fp8_test")) == len(
        [key for key in newest() if key.dtype == "fp8bf16" and key.hdim_q == 128]
    )
    assert len(chosen("rocm-libraries-2026", profile="aiter_group")) == 4848
    assert by_dtype == 4848 - 4608  # receipt 600 is what has no scale, and only fp8 has


@pytest.mark.parametrize("mask_impl", ["simplified", "generic"])
@pytest.mark.parametrize(("name", "limit"), [("ck-2025-06", 14), ("ck-2025-11", 12), ("rocm-libraries-2026", 62)])
def test_smoke_covers_every_axis_value_with_few_kernels(name: str, limit: int, mask_impl: str) -> None:
    full = chosen(name, mask_impl=mask_impl)
    smoke = chosen(name, mask_impl=mask_impl, tier="smoke")
    for axis in dialect(name).families["batch_prefill"].fields:
        assert {getattr(key, axis) for key in smoke} == {getattr(key, axis) for key in full}, axis
    assert mask_impl == "generic" or len(smoke) <= limit


@pytest.mark.parametrize("receipt", [2, 3, 4, 100, 200, 600])
def test_smoke_has_kernels_of_receipts_that_integrations_use(receipt: int) -> None:
    for name in dialect_names():
        assert bool(chosen(name, tier="smoke", receipt=receipt)) == bool(chosen(name, receipt=receipt))


def test_full_and_nightly_leave_nothing_out() -> None:
    assert set(tiers()) == {"smoke", "full", "nightly"}
    assert chosen(tier="full") == chosen(tier="nightly") == chosen()


@settings(max_examples=40)
@given(count=st.integers(1, 40), size=st.integers(0, 100), shuffle=st.randoms(use_true_random=False))
def test_shards_are_disjoint_complete_and_balanced(count: int, size: int, shuffle: random.Random) -> None:
    keys = newest()[:size]
    shards = [take_shard(keys, (index, count)) for index in range(1, count + 1)]
    names = [key.name for shard in shards for key in shard]
    assert sorted(names) == sorted(key.name for key in keys)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1
    assert all([key for key in keys if key in shard] == shard for shard in map(list, shards))
    mixed = list(keys)
    shuffle.shuffle(mixed)
    for index, shard in enumerate(shards, 1):
        assert {key.name for key in take_shard(mixed, (index, count))} == {key.name for key in shard}
        assert all(shard_of(mixed, key.name, count) == index for key in shard)


def test_shards_are_dealt_after_all_conditions() -> None:
    parts = [chosen(where=("key.logits",), shard=(index, 5)) for index in range(1, 6)]
    assert sorted(map(len, parts)) == [19, 19, 19, 19, 20]
    assert {key for part in parts for key in part} == set(chosen(where=("key.logits",)))


@pytest.mark.parametrize(
    "text", ["0/3", "4/3", "3", "3/", "/3", "1/0", "-1/3", "1.0/3", "a/b", "1/3/5", "", " 1/3", "٣/٤"]
)
def test_parse_shard_of_bad_text_raises(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_shard(text)
    assert str(caught.value) == f"--shard {text!r}: write I/N with 1 <= I <= N, e.g. 3/16"


def test_parse_shard_of_good_text_is_pair() -> None:
    assert parse_shard("3/16") == (3, 16)
    assert parse_shard("1/1") == (1, 1)


FIRST = (
    "fmha_batch_prefill_d128_fp16_batch_b64x128x64x128x64x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16"
    "_qr_async_vr_psddv_logits_nbias_nmask_lse_dropout_nsquant"
)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"filters": ("*_fp16_*", "*_bf16_*")},
            f"--filter '*_fp16_*', --filter '*_bf16_*'). --filter '*_bf16_*' removes the last 192, e.g. {FIRST}.",
        ),
        ({"profile": "fp32_all"}, f"profile fp32_all). Profile fp32_all removes the last 384, e.g. {FIRST}."),
        ({"receipt": 800}, "). Receipt 800 keeps no kernel of batch_prefill in ck-2025-11."),
        (
            {"archs": ("gfx1100",)},
            "). ck-2025-11 has no batch_prefill kernel for gfx1100: batch prefill gathers pages through gfx9 buffer "
            "instructions; wave32 archs have no such pipeline.",
        ),
        ({"shard": (400, 400)}, "shard 400/400). Shard 400/400 of 384 kernels is empty: use fewer shards."),
    ],
)
def test_empty_selection_reports_what_emptied_it(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        select_some(dialect("ck-2025-11"), Selection(**{"archs": GFX950, **fields}))
    assert str(caught.value).startswith("no kernel is selected (archs gfx")
    assert str(caught.value).endswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def keep(key) return True\n", "line 1: SyntaxError: expected ':'"),
        ("import no_such_module_here\n", "line 1: ModuleNotFoundError: No module named 'no_such_module_here'"),
        ("x = 1\n1 / 0\n", "line 2: ZeroDivisionError: division by zero. Fix the file."),
        ("x = 1\n", "it defines no function keep(key) -> bool."),
        ("def keep(key):\n    return key.no_field\n", f"keep({FIRST}): line 2: AttributeError: 'Key' object has no "),
        ("def keep(key):\n    return 1\n", f"keep({FIRST}) returned 1; return True or False."),
        ("class Own(BaseException): pass\nraise Own('\\x1b[1m')\n", "line 2: Own: \\x1b[1m. Fix the file."),
        (
            "class Own(Exception):\n    def __str__(self): raise SystemExit\nraise Own\n",
            "line 3: Own: its message can't be read",
        ),
        ("def f(): f()\nf()\n", "line 1: RecursionError: maximum recursion depth exceeded"),
        (
            "class Own:\n    def __repr__(self): 1 / 0\ndef keep(key):\n    return Own()\n",
            f"keep({FIRST}) returned Own;",
        ),
        ("a = '\0'\n", "SyntaxError: source code string cannot contain null bytes"),
    ],
)
def test_bad_filter_files(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "filter.py"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        chosen(filter_files=(file,))
    # the class depends on the Python
    complaint = str(caught.value).replace("ValueError: source", "SyntaxError: source")
    assert complaint.startswith(f"--filter-file {file}: {message}")
    assert list(tmp_path.iterdir()) == [file]  # no __pycache__ either


def test_missing_filter_file(tmp_path: Path) -> None:
    for file, what in ((tmp_path / "no.py", "no such file"), (tmp_path, "it is a folder, not a file")):
        with pytest.raises(UsageError) as caught:
            chosen(filter_files=(file,))
        assert str(caught.value) == (f"--filter-file {file}: {what}. It must be Python and define keep(key) -> bool.")


def test_filter_file_that_is_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="it is a pipe or a device; give a plain file"):
        chosen(filter_files=(tmp_path / "pipe",))


def test_ctrl_c_while_filter_file_runs_stays_one(tmp_path: Path) -> None:
    file = tmp_path / "filter.py"
    file.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nx = [n for n in range(1000)]\n")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored if these tests run in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            chosen(filter_files=(file,))
    finally:
        signal.signal(signal.SIGINT, before)


def test_filter_file_may_use_own_names_and_any_suffix(tmp_path: Path) -> None:
    file = tmp_path / "filter.txt"
    file.write_text("WANTED = {'bf16'}\ndef keep(key):\n    return key.dtype in WANTED\n")
    assert len(chosen(filter_files=(file,))) == 192


@pytest.mark.parametrize(
    ("text", "read", "message"),
    [
        ("  smoke:\n    - key.dtyp == 'x'", tiers, "5: tiers.smoke[0]: \"key.dtyp == 'x'\": unknown field"),
        ("profiles:\n  p: key.dtype ==", profiles, "5: profiles.p: 'key.dtype ==': does not parse at column"),
        ("profile: {}", profiles, "4: profile: unknown field"),
    ],
)
def test_mistake_in_selections_table_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, read: functools._lru_cache_wrapper[Any], message: str
) -> None:
    monkeypatch.setattr(dialects, "TABLES", tmp_path)
    monkeypatch.setattr(selections, "selections", dialects.selections.__wrapped__)
    head = "receipts: {}\ntiers: {}\n\n" if text.startswith("profile") else "receipts: {}\nprofiles: {}\ntiers:\n"
    complaint = table_complaint(tmp_path / "selections.yaml", f"{head}{text}\n", lambda _: read.__wrapped__())
    assert complaint.startswith(message)

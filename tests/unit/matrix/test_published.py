"""The stored lists are whole and as published. Comparing names finds every difference."""

from __future__ import annotations

import dataclasses
import io
import zipfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpm.base.errors import TableError
from ckpm.matrix.published import GOLDEN, NameDifference, OrderDifference, compare_names, emission_sha256, stored_lists

# Published counts of the newest state (facts), and the sha256 of its emission order for receipt 0 as upstream gave it.
SIMPLIFIED = {0: 4848, 1: 4848, 2: 3456, 3: 3456, 4: 3456, 200: 4848, 300: 4848, 400: 4848, 600: 4608, 888: 4848}
EMISSION = "2ddd7cb60e9965f0d6d22fd563f3548dcec30b983d0c2e28164d882166e3c2fe"


def test_stored_lists_have_published_counts() -> None:
    counts = {
        (s.arch, s.mask_impl, s.receipt): s.count
        for s in stored_lists()
        if (s.dialect, s.api) == ("rocm-libraries-2026", "batch_prefill")
    }
    assert counts == {
        (arch, "simplified", receipt): count for arch in ("gfx942", "gfx950") for receipt, count in SIMPLIFIED.items()
    } | {("gfx950", "generic", receipt): count for receipt, count in {0: 8080, 2: 5760, 200: 8080, 600: 7680}.items()}
    orders = {s.sha256_emission_order for s in stored_lists() if s.api == "batch_prefill" and s.count == 4848}
    assert orders == {EMISSION}


# facts: the tile engine README's 33,541 of April 2026 by family, and the totals of the newest state on gfx950
README = {
    "fwd": 11980, "fwd_splitkv": 2952, "fwd_splitkv_combine": 138, "fwd_appendkv": 99, "fwd_pagedkv": 252,
    "batch_prefill": 5928, "bwd_dot_do_o": 60, "bwd_dq_dk_dv": 12000, "bwd_convert_dq": 132,
}  # fmt: skip


def test_stored_lists_have_published_totals() -> None:
    april = {s.api: s.count for s in stored_lists() if s.dialect == "rocm-libraries-2026-04"}
    assert april == README
    assert sum(april.values()) == 33541
    assert all(len(s.families) == 1 for s in stored_lists() if s.dialect == "rocm-libraries-2026-04")
    for mask, total in (("simplified", 23225), ("generic", 35325)):
        newest = [s.count for s in stored_lists() if (s.arch, s.receipt, s.mask_impl) == ("gfx950", 0, mask)
                  and s.dialect == "rocm-libraries-2026"]  # fmt: skip
        assert sum(newest) == total


@pytest.mark.parametrize("folder", [GOLDEN, GOLDEN / "own"], ids=lambda folder: folder.name)
def test_stored_lists_are_whole_sorted_and_distinct(folder: Path) -> None:
    for stored in stored_lists(folder):
        names = stored.names()
        assert list(names) == sorted(set(names))
        assert len(names) == stored.count
        assert emission_sha256(names) == stored.sha256


@pytest.mark.parametrize(("folder", "limit"), [(GOLDEN, 2_000_000), (GOLDEN / "own", 300_000)])
def test_archive_members_each_have_entry(folder: Path, limit: int) -> None:
    archive = folder / "lists.zip"
    with zipfile.ZipFile(archive) as opened:
        assert sorted(opened.namelist()) == sorted({stored.member for stored in stored_lists(folder)})
    assert archive.stat().st_size < limit


def _archive(text: bytes, member: str = "list.txt") -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, text)
    return stream.getvalue()


def _broken(data: bytes) -> bytes:
    """Flip a bit of an archive's first member, whose text begins after 30 bytes and the name."""
    return data[:40] + bytes([data[40] ^ 1]) + data[41:]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (_archive(b"fmha_x\n"), ":1: sha256 of list.txt is 5bfa00"),
        (_archive(b"fmha_x\n", "other.txt"), ":1: list.txt can't be read: There is no item named 'list.txt'"),
        (_broken(_archive(b"fmha_x\n" * 50)), ":1: list.txt can't be read: "),
        (_archive(b"fmha_x\n")[:-10], ":1: list.txt can't be read: File is not a zip file"),
        (b"", ":1: list.txt can't be read: File is not a zip file"),
        (None, ":1: list.txt can't be read: No such file"),
    ],
    ids=["other-names", "no-member", "flipped-bit", "cut", "empty", "missing"],
)
def test_names_of_damaged_archive_are_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "lists.zip"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(TableError) as caught:
        dataclasses.replace(stored_lists()[0], archive=file, member="list.txt").names()
    assert str(caught.value).startswith(f"{file}{message}")
    assert str(caught.value).endswith("Restore the file.")


def test_stored_lists_refuse_damaged_manifest(tmp_path: Path) -> None:
    file = tmp_path / "manifest.json"
    file.write_text('{"format": "", "provenance": {}, "entries": [\n{"version": "a"}]}')
    with pytest.raises(TableError) as caught:
        stored_lists(tmp_path)
    assert str(caught.value).startswith(f"{file}:2: entries[0]: field 'arch' is missing; it has version")


@pytest.mark.parametrize(
    ("matrix_names", "upstream_names", "missing", "extra", "order"),
    [
        ("ab", "abc", "c", "", None),
        ("abcd", "abc", "", "d", None),
        ("xbc", "abc", "a", "x", None),
        ("acb", "abc", "", "", (1, "c", "b")),
        ("xcba", "abcy", "y", "x", (0, "c", "a")),
        ("bab", "abb", "", "", (0, "b", "a")),
    ],
)
def test_compare_names_finds_each_difference(
    matrix_names: str, upstream_names: str, missing: str, extra: str, order: tuple[int, str, str] | None
) -> None:
    difference = compare_names(list(matrix_names), list(upstream_names))
    expected = OrderDifference(*order) if order else None
    assert difference == NameDifference(tuple(missing), tuple(extra), expected, len(matrix_names) - len(extra))
    assert difference.count == len(missing) + len(extra)
    assert difference.same == (matrix_names == upstream_names)


names = st.lists(st.sampled_from("abcdefgh"), max_size=12)


@settings(max_examples=100)
@given(names, names)
def test_compare_names_is_same_for_equal_lists_only(matrix_names: list[str], upstream_names: list[str]) -> None:
    difference = compare_names(matrix_names, upstream_names)
    assert difference.same == (matrix_names == upstream_names)
    assert Counter(matrix_names) + Counter(difference.missing) == Counter(upstream_names) + Counter(difference.extra)


def test_lines_begin_with_all_counts_in_one_line() -> None:
    assert compare_names(["a"], ["a"]).lines() == ()
    first, _ = compare_names(["y", "x", "new"], ["x", "y", *"abc"]).lines()
    assert first == "3 missing (a, ..); 1 extra (new); the order differs from position 0 on"


def test_describe_has_counts_some_names_and_position() -> None:
    assert compare_names(["a"], ["a"]).describe() == "the names are the same, in the same order"
    assert compare_names(["y", "x", "new"], ["x", "y", *"abcdefg"]).describe() == (
        "7 missing:\n  a\n  b\n  c\n  d\n  e\n  and 2 more\n"
        "1 extra:\n  new\n"
        "the order differs from position 0 on (of the names that both have):\n  ours   y\n  theirs x"
    )

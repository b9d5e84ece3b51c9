"""A mistake in a YAML table is one message with file, line and field, before anything is enumerated."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpm.base.errors import TableError, UnknownWordError
from ckpm.base.tablefile import load, overlay, read_table
from ckpm.matrix.dialects import (
    TABLES,
    ArchTable,
    archs,
    check_receipt,
    compute_units,
    dialect,
    dialect_names,
    feature_table,
    features,
    read_dialect,
    receipts,
    selections,
    upstreams,
)
from ckpm.matrix.sessions import sessions
from tests.unit.shared import replace_text, table_complaint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1, 2", "1: not valid YAML: expected ',' or ']', but got '<stream end>'. Fix that line."),
        ("a: 1\nb: 2\na: 3\n", "3: a: written twice. Keep one."),
        ("a: 1\n\tb: 2\n", "2: not valid YAML: found character '\\t' that cannot start any token. Fix that line."),
        ("a: 1\nb: \x00\n", "2: not valid YAML: special characters are not allowed. Fix that line."),
        ("a: 1\nb: 2020-13-45\n", "2: b: not a value: month must be in 1..12"),
        ("a: !!int ''\n", "1: a: not a value: '' does not fit tag:yaml.org,2002:int"),
        ("a: 1\n---\nb: 2\n", "2: not valid YAML: but found another document. Fix that line."),
        ("a: *b\n", "1: not valid YAML: found undefined alias 'b'. Fix that line."),
        ("- 1\n", "1: top level: must be a mapping, not a list"),
        ("", "1: the table is empty."),
    ],
)
def test_malformed_yaml(tmp_path: Path, text: str, message: str) -> None:
    assert table_complaint(tmp_path / "t.yaml", text, load).startswith(message)


def test_missing_or_undecodable_file(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    with pytest.raises(TableError, match=r"t\.yaml:1: the table can't be read: .*No such file"):
        load(file)
    file.write_bytes(b"a: \xff\n")
    with pytest.raises(TableError, match=r"t\.yaml:1: the table can't be read: 'utf-8' codec"):
        load(file)


def test_no_is_text_and_true_boolean(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text("a: [no, yes, true, 16, null]\n")
    assert [item.value for item in load(file).get("a").items()] == ["no", "yes", True, 16, None]


def test_file_that_changed_is_read_anew(tmp_path: Path) -> None:
    """Tables are kept by their text: neither the name of a file nor its time decides."""
    file, copy = tmp_path / "table.yaml", tmp_path / "copy.yaml"
    file.write_text("a: 1\n")
    assert load(file).get("a").integer() == 1
    file.write_text("a: 2\n")
    assert load(file).get("a").integer() == 2
    copy.write_text("a: 2\n")
    assert load(copy).file == copy


def test_overlay_merges_replaces_and_removes(tmp_path: Path) -> None:
    (tmp_path / "parent.yaml").write_text("a: {x: [1], y: 2, z: 3}\nb: 4\n")
    (tmp_path / "child.yaml").write_text("a:\n  x: [5, 6]\n  z: null\n")
    merged = overlay(load(tmp_path / "parent.yaml"), load(tmp_path / "child.yaml"))
    assert [item.value for item in merged.get("a").get("x").items()] == [5, 6]
    assert sorted(merged.get("a").mapping()) == ["x", "y"]
    assert (merged.get("a").get("x").file.name, merged.get("a").get("x").line) == ("child.yaml", 2)
    assert (merged.get("a").get("y").file.name, merged.get("a").get("y").line) == ("parent.yaml", 1)


def copy_dialect(folder: Path) -> Path:
    """The mid-2025 dialect in a folder of its own."""
    return Path(shutil.copytree(TABLES / "dialects" / "ck-2025-06", folder / "ck-2025-06"))


TILE = "b64x128x64x128x64x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16"


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("summary: CK of mid", "sumary: CK of mid", 3, "sumary: unknown field"),
        ("dialect: ck-2025-06", "dialect: ck", 2, "dialect: a dialect has the name of its folder, here 'ck-2025-06'"),
        ("gfx950: gfx9, gfx1100:", "gfx959: gfx9, gfx1100:", 1, "archs.gfx959: 'gfx959' is not in archs.yaml"),
        ("  archs: {gfx90a:", "  archs: {gfx90b:", 13, "every_family.archs.gfx90b: 'gfx90b' is not in archs.yaml"),
        ("_{lse}_", "_{lsee}_", 3, "name: slot 'lsee' is not an axis; known: dtype, hdim_q, "),
        ("_{lse}_", "_", 3, "name: axis 'lse' has several values and needs a slot {lse}"),
        ("_{tile}_", "_", 3, "name: a kernel's tile needs a slot {tile}"),
        ("[_o{occupancy}]", "_o{occupance}", 4, "tile: 'occupance' is not a number of a tile; known: bm0, "),
        ("order: [dtype,", "order: [dytpe,", 6, "order: 'dytpe' is not an axis of a key"),
        ("mode, tile, logits", "mode, tile, name, logits", 6, "order: 'name' is not an axis of a key"),
        ("mode, tile, logits", "mode, logits", 6, "order: axis 'tile' is missing; every key has one"),
        ("[dtype, hdim_q hdim_v, mode, tile,", "[dtype, tile, hdim_q hdim_v, mode,", 6, "order: tile depends on dtype"),
        ("  lse: [true, false]\n", "", 6, "order: axis 'lse' has no values in axes"),
        ("  lse: [true, false]\n", "  lsf: [true]\n  lse: [true]\n", 13, "axes.lsf: not in the order at "),
        ("dtype: [fp16, bf16]", "dtype: [fp16, fp16]", 8, "axes.dtype: a value is listed twice"),
        ("[[128, 128]]", "[['128', 128]]", 9, "axes.hdim_q hdim_v[0][0]: must be a whole number, not '128'"),
        ("[[128, 128]]", "[[-8, 128]]", 9, "axes.hdim_q hdim_v[0][0]: must be a whole number >= 0, not -8"),
        ("[[128, 128]]", "[[128]]", 9, "axes.hdim_q hdim_v[0]: must hold 2 values (hdim_q, hdim_v), not 1"),
        ("  lse: [true, false]", "  lse: [yes, no]", 13, "axes.lse[0]: must be true or false, not 'yes'"),
        ("generic: [no,", "genric: [no,", 21, "masks.genric: unknown field; known here: simplified, generic"),
        ("  generic: [no, causal, generic]\n", "", 19, "masks: field 'generic' is missing; it has simplified"),
        (
            "  qscale: {no: nsquant}",
            "  scale: {no: nsquant}",
            30,
            "spellings.scale: no axis of that name; known: dtype, ",
        ),
        (
            "    fp16 bf16:",
            "    fp16 bf61:",
            34,
            "tiles.gfx9.fp16 bf61: 'bf61' is not a value of the axis; known: fp16, ",
        ),
        ("  gfx9:\n", "  gfx8:\n", 33, "tiles.gfx8: unknown field; known here: gfx9"),
        ("128x128:", "129x128:", 36, "tiles.gfx9.fp16 bf16.129x128: not among the values of axis 'hdim_q hdim_v'"),
        ("128x128:", "d128:", 36, "tiles.gfx9.fp16 bf16.d128: head dims are written hdim_qxhdim_v, e.g. 128x128, "),
        (TILE, TILE[:-3], 36, f"tiles.gfx9.fp16 bf16.128x128[0].tile: '{TILE[:-3]}' is not a tile; the family writes"),
        (
            TILE,
            TILE.replace("b64x", "b96x"),
            36,
            "tiles.gfx9.fp16 bf16.128x128[0].tile: no such block: bm0 96 is not a multiple of 4 x 16, its waves",
        ),
        (
            TILE,
            TILE.replace("x64x128_r4", "x40x128_r4"),
            36,
            "tiles.gfx9.fp16 bf16.128x128[0].tile: no such block: bk1 40 is not a multiple of 1 x 16, its waves",
        ),
        (
            TILE,
            TILE.replace("x1_r4", "x1_r2"),
            36,
            "tiles.gfx9.fp16 bf16.128x128[0].tile: no such block: the 2 waves of gemm 1 are not a multiple of ",
        ),
        ("when: few_blocks", "for: {lse: [true]}", 36, "tiles.gfx9.fp16 bf16.128x128[0].for.lse: unknown field"),
        ("when: few_blocks", "for: {mode: [bath]}", 36, "tiles.gfx9.fp16 bf16.128x128[0].for.mode[0]: mode 'bath'"),
        ("when: few_blocks", "when: few_block", 36, "tiles.gfx9.fp16 bf16.128x128[0].when: condition 'few_block' is"),
        ("dtype: [fp16, bf16]", "dtype: [fp16, bf61]", 8, "axes.dtype[1]: dtype 'bf61' is unknown; did you mean '"),
        (f"- {{tile: {TILE}", f"- {TILE}\n        - {{tile: {TILE}", 36, "tiles.gfx9.fp16 bf16.128x128: a tile is"),
        (
            "rules: [group_mode_pads",
            "rules: [group_mode_pad",
            38,
            "rules[0]: no rule 'group_mode_pad_both_seqlens' in ckpm/matrix/rules.py; did you mean '",
        ),
        ("rules: [", "rules: [sink_needs_mask, ", 38, "rules[0]: rule 'sink_needs_mask' reads sink, which this family"),
        ("  2: {", "  5: {", 40, "receipts.5: this receipt is not in selections.yaml"),
        ("2: {vlayout: [row]", "2: {vlayout: [raw]", 40, "receipts.2.vlayout[0]: vlayout 'raw' is unknown; did you "),
        ("2: {vlayout: [row]", "2: {dtype: [fp32]", 40, "receipts.2.dtype: 'fp32' is not a value of the axis; known: "),
        ("2: {vlayout: [row]", "2: {tile: [64]", 40, "receipts.2.tile: unknown field; known here: dtype, "),
    ],
)
def test_impossible_tables_are_refused(tmp_path: Path, old: str, new: str, line: int, message: str) -> None:
    folder = copy_dialect(tmp_path)
    files = (folder / name for name in ("dialect.yaml", "batch_prefill.yaml"))
    (file,) = (file for file in files if old in file.read_text())
    text = replace_text(file.read_text(), old, new)
    complaint = table_complaint(file, text, lambda _: read_dialect(folder).families["batch_prefill"])
    assert complaint.startswith(f"{line}: {message}")


@pytest.mark.parametrize(
    ("old", "new", "message"), [("wave_size: 64", "wave_size: 48", "wave_size: unknown word '48'; known here: 32, 64")]
)
def test_impossible_arch_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = replace_text((TABLES / "archs.yaml").read_text(), old, new)
    complaint = table_complaint(tmp_path / "archs.yaml", text, lambda file: read_table(file, ArchTable))
    assert f": archs.gfx90a.{message}" in complaint


@pytest.mark.parametrize(
    ("file", "old", "new", "read", "message"),
    [
        ("archs.yaml", "gfx1100: {generation: gfx11,", "gfx1100: {generation: gfx12,", archs,
         "archs.gfx1100.generation: 'gfx1100' does not begin with gfx12"),
        ("selections.yaml", "  2: Flash", "  two: Flash", receipts, "receipts.two: must be a whole number, not 'two'"),
        ("dialects/features.yaml", "variant_of: few_compute_units", "variant_of: few_compute_unit", features,
         "features.gfx942_by_dispatch.variant_of: unknown 'few_compute_unit'; known: few_compute_units, "),
        ("dialects/features.yaml", "base: rocm-libraries-2026", "base: rocm-libraries-20266", features,
         "base: unknown 'rocm-libraries-20266'; known: "),
    ],
)  # fmt: skip
def test_mistake_of_table_is_at_its_own_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    old: str,
    new: str,
    read: Callable[[], object],
    message: str,
) -> None:
    text = replace_text((TABLES / file).read_text(), old, new)
    shutil.copytree(TABLES / "dialects", tmp_path / "dialects")
    (tmp_path / file).write_text(text)
    monkeypatch.setattr("ckpm.matrix.dialects.TABLES", tmp_path)
    for cached in (archs, selections, feature_table):
        cached.cache_clear()
    with pytest.raises(TableError) as caught:
        read()
    line = 1 + text[: text.index(new)].count("\n")
    assert str(caught.value).startswith(f"{tmp_path / file}:{line}: {message}")
    for cached in (archs, selections, feature_table):
        cached.cache_clear()


def test_file_that_is_not_family(tmp_path: Path) -> None:
    folder = copy_dialect(tmp_path)
    (folder / "fwwd.yaml").write_text("archs: {}\n")
    with pytest.raises(TableError, match=r"fwwd\.yaml:1: no such family; known: fwd, "):
        read_dialect(folder)


@pytest.mark.parametrize(
    ("parent", "message"),
    [
        ("ck-2025-11", "ck-2025-06/dialect.yaml:3: parent: a dialect can't be its own ancestor"),
        ("ck-2025-06", "ck-2025-06/dialect.yaml:3: parent: a dialect can't be its own ancestor"),
        ("ck-25-06", "ck-2025-06/dialect.yaml:3: parent: no dialect 'ck-25-06' beside this one; known: ck-2025-06, "),
    ],
)
def test_impossible_parents(tmp_path: Path, parent: str, message: str) -> None:
    shutil.copytree(TABLES / "dialects", tmp_path, dirs_exist_ok=True)
    file = tmp_path / "ck-2025-06" / "dialect.yaml"
    file.write_text(file.read_text().replace("summary:", f"parent: {parent}\nsummary:", 1))
    with pytest.raises(TableError) as caught:
        read_dialect(tmp_path / "ck-2025-11")
    assert str(caught.value).startswith(f"{tmp_path}/{message}")


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (3000, "a page has a power of two of tokens, not 3000; 0 is any multiple of 16"),
        (2**31, "a page has at most 1073741824 tokens, not 2147483648: the kernel's argument has 32 bits"),
    ],
)
def test_page_of_impossible_size_is_refused_by_the_table(tmp_path: Path, size: int, message: str) -> None:
    """The C++ shifts by the logarithm of the size: without the check a build fails after a minute."""
    shutil.copytree(TABLES / "dialects", tmp_path, dirs_exist_ok=True)
    file = tmp_path / "ckpm-extended" / "batch_prefill.yaml"
    text = replace_text(file.read_text(), "page_size: [1, ", f"page_size: [{size}, 1, ")
    complaint = table_complaint(file, text, lambda _: read_dialect(file.parent).families["batch_prefill"])
    assert complaint.endswith(f"page_size[0]: {message}")


def test_tables_as_they_are() -> None:
    assert list(archs()) == ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"]
    assert archs()["gfx950"].lds_bytes == 160 * 1024
    assert archs()["gfx942"].lds_bytes == 64 * 1024
    assert list(receipts()) == [0, 1, 2, 3, 4, 100, 200, 300, 400, 600, 700, 800, 801, 888]
    assert {name: upstream.dialect for name, upstream in upstreams().items()} == {
        "aiter": "ck-2025-11",
        "flash-attn": "ck-2025-06",
        "ckpm": "rocm-libraries-2026",
        "ckpm-extended": "ckpm-extended",
        "ckpm-v3": "prefill-v3",
        "ckpm-serving": "ckpm-serving",
    }
    assert [dialect(name).name for name in dialect_names()] == [
        "ck-2025-06", "ck-2025-11", "ckpm-extended", "ckpm-serving", "prefill-v3", "rocm-libraries-2026",
        "rocm-libraries-2026-04",
        "rocm-libraries-2026-09",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["²", "٢", "-1", ""])
def test_receipt_is_plain_number(text: str) -> None:
    with pytest.raises(UnknownWordError):
        check_receipt(text)


def test_every_arch_that_is_built_has_its_session() -> None:
    assert list(sessions().archs) == list(compute_units())

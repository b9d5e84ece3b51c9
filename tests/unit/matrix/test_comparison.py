"""A changed entry of any family's table is seen by the comparison with upstream's stored names."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from ckpm.base.tablefile import Field
from ckpm.kernels.parity import names as parity_names
from ckpm.matrix.dialects import FAMILIES, archs, dialect, receipts
from ckpm.matrix.family_tables import read_family
from ckpm.matrix.published import stored_lists


def leaves(field: Field, *path: str | int) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """(path, text) of every text in a table."""
    if isinstance(field.value, dict | list):
        for name, child in field.value.items() if isinstance(field.value, dict) else enumerate(field.value):
            yield from leaves(child, *path, name)
    elif isinstance(field.value, str):
        yield path, field.value


def with_text(field: Field, path: tuple[str | int, ...], text: str) -> Field:
    """A table with one text changed."""
    if not path:
        return dataclasses.replace(field, value=text)
    value = field.value.copy()
    value[path[0]] = with_text(value[path[0]], path[1:], text)
    return dataclasses.replace(field, value=value)


@pytest.mark.parametrize("name", FAMILIES)
def test_one_changed_table_entry_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tile of head dim 128, its first length twice as long: the stored list of upstream's names differs."""
    wanted = ("rocm-libraries-2026", "gfx950", 0, "simplified")
    (entry,) = (
        entry
        for entry in stored_lists()
        if name in entry.families and (entry.dialect, entry.arch, entry.receipt, entry.mask_impl) == wanted
    )
    upstream, source = "\n".join(entry.names()), dialect(entry.dialect)
    table = source.families.table(name)
    (trait,) = source.family(name).archs[entry.arch]
    tile_path = "tiles", trait, "fp16 bf16", "128x128"
    path, word = next(
        (path, word)
        for path, word in leaves(table.get("tiles").get(trait).get("fp16 bf16").get("128x128"), *tile_path)
        if re.match(r"b\d", word) and f"_{word}_" in upstream
    )
    changed = re.sub(r"\d+", lambda number: str(2 * int(number[0])), word, count=1)
    family = read_family(name, with_text(table, path, changed), tuple(archs()), tuple(receipts()))
    changed_dialect = SimpleNamespace(
        family=lambda family_name: family if family_name == name else source.family(family_name)
    )
    monkeypatch.setattr(parity_names, "dialect", lambda _: changed_dialect)
    case = parity_names.stored_case(entry)
    assert case.outcome == "failed"
    assert f"_{changed}_" in case.text

"""The table of C++ words: a mistake in it is named with file, line and field."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckpm.base.errors import TableError
from ckpm.kernels.families.spellings import SPELLINGS, spellings
from tests.unit.shared import replace_text, table_complaint

TEXT = SPELLINGS.read_text()


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        (
            "  fp16: {type: FmhaFwdFp16, bytes: 2}",
            "  fp16: {type: FmhaFwdFp16}",
            4,
            "dtype.fp16: field 'bytes' is miss",
        ),
        ("  vllm: ", "  vllm:\n    x: ", 48, "kv_table.vllm: must be text"),
    ],
)
def test_mistake_is_named(tmp_path: Path, old: str, new: str, line: int, message: str) -> None:
    complaint = table_complaint(tmp_path / "spellings.yaml", replace_text(TEXT, old, new), spellings)
    assert complaint.startswith(f"{line}: {message}")


def test_value_without_word_is_named() -> None:
    with pytest.raises(TableError, match=r"spellings\.yaml:3: dtype: no C\+\+ word for 'fp64'; there are fp16, bf16, "):
        spellings()["dtype"]["fp64"]

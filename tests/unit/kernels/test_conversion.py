"""The words for a conversion to bf16 come from what the compiler prints of CK's header (tests/build has real ones)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckpm.base.errors import SetupError, UsageError
from ckpm.kernels.code.bf16 import bf16_conversion
from tests.unit.shared import Run

CONVERSIONS = """#define CK_TILE_FLOAT_TO_BFLOAT16_STANDARD 0
#define CK_TILE_FLOAT_TO_BFLOAT16_TRUNCATE 2
#define CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT CK_TILE_FLOAT_TO_BFLOAT16_TRUNCATE
#define CK_TILE_FLOAT_TO_FP8_STANDARD 0
"""


def ask(tmp_path: Path, printed: str, code: int = 0) -> str:
    """The conversion if the compiler prints a text and ends with a code."""
    (tmp_path / "macros").write_text(printed)
    (tmp_path / "cc").write_text(f"cat {tmp_path}/macros; echo 'no such header' >&2; exit {code}")
    return bf16_conversion(["/bin/sh", str(tmp_path / "cc"), "-c", "unit.hip"], {})


def test_compilers_own_type_decides_over_number(tmp_path: Path) -> None:
    assert ask(tmp_path, f"{CONVERSIONS}#define CK_TILE_USE_LLVM_BUILTIN_BF16 1\n") == "compiler"
    assert ask(tmp_path, f"{CONVERSIONS}#define CK_TILE_USE_LLVM_BUILTIN_BF16 0\n") == "truncate"
    assert ask(tmp_path, CONVERSIONS) == "truncate"  # CK of mid-2025 has no such macro


def test_header_without_conversions_leaves_them_unknown(tmp_path: Path) -> None:
    assert ask(tmp_path, "#define CK_TILE_FLOAT_TO_FP8_STANDARD 0\n") == ""


def test_number_without_conversion_is_refused_with_choices(tmp_path: Path) -> None:
    text = CONVERSIONS.replace("DEFAULT CK_TILE_FLOAT_TO_BFLOAT16_TRUNCATE", "DEFAULT 7")
    with pytest.raises(UsageError, match=r"BFLOAT16_DEFAULT=7: .* It has 0 \(standard\), 2 \(truncate\)\.$"):
        ask(tmp_path, text)


def test_compiler_that_fails_is_named_with_its_words(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"^/bin/sh can't read ck_tile/core/config.hpp.*: no such header"):
        ask(tmp_path, CONVERSIONS, code=1)


@pytest.mark.parametrize(
    "text", ["NDEBUG", "CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT=truncate", "CK_TILE_FMHA_FWD_FAST_EXP2=0"]
)
def test_other_macros_are_no_option_of_build(run: Run, text: str) -> None:
    code, _, errors = run("build", f"-D{text}")
    assert (code, f"'{text}' is neither CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT=N" in errors) == (2, True)

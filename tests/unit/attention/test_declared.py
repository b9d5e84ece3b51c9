"""Kernel sets that C++ files declare: what is read as one, which kernels it means, what is refused, with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckpm.attention.cpp.declared import KernelSet, declarations, kernels_of
from ckpm.base.errors import InputError
from ckpm.commands import main
from ckpm.matrix.dialects import dialect
from ckpm.matrix.selection import Selection, select

PROGRAM = Path(__file__).parents[2] / "data/dispatcher/prefill.cpp"


def read(tmp_path: Path, text: str) -> tuple[KernelSet, ...]:
    file = tmp_path / "program.cpp"
    file.write_text(text)
    return declarations(file)


def kernel_set(*patterns: str, upstream: str = "aiter") -> KernelSet:
    return KernelSet(name="mine", upstream=upstream, patterns=patterns, location="program.cpp:3")


def test_set_is_read_as_compiler_would(tmp_path: Path) -> None:
    text = """
    #define CKPM_KERNEL_SET(name, upstream, ...) nothing
    // CKPM_KERNEL_SET(not_this, "aiter", "dtype=bf16");
    /* CKPM_KERNEL_SET(nor_this, "aiter", "dtype=bf16"); */
    const char* text = "CKPM_KERNEL_SET(nor_that, \\"aiter\\", \\"dtype=bf16\\")";
    CKPM_KERNEL_SET(first, "aiter", "dtype=bf16 "
                    /* between */ "hdim_q=128", "dtype=fp16");
    CKPM_KERNEL_SET ( second , "ckpm" , "lse=true" )
    """
    first, second = read(tmp_path, text)
    assert (first.name, first.upstream, first.patterns) == ("first", "aiter", ("dtype=bf16 hdim_q=128", "dtype=fp16"))
    assert (second.name, second.upstream, second.patterns) == ("second", "ckpm", ("lse=true",))
    assert (first.location, second.location) == (f"{tmp_path}/program.cpp:6", f"{tmp_path}/program.cpp:8")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("int main() {}", "no CKPM_KERNEL_SET"),
        ("\nCKPM_KERNEL_SET(a);", ":2: write CKPM_KERNEL_SET"),
        ('CKPM_KERNEL_SET(a, "aiter", "dtype=bf16"', ":1: write CKPM_KERNEL_SET"),
        ("CKPM_KERNEL_SET(a, UPSTREAM, PATTERN);", "UPSTREAM stands where a plain literal"),
        ('CKPM_KERNEL_SET(a, "aiter", );', "nothing stands where"),
        ('CKPM_KERNEL_SET(a, "x", "y");' * 2, ":1: a is declared twice"),
    ],
)
def test_another_form_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, text)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be read"):
        declarations(tmp_path / "none.cpp")


def test_pattern_means_kernels_that_where_would_select() -> None:
    where = "key.dtype == 'bf16' and key.hdim_q == 128 and key.mask in ('no', 'mask') and not key.lse"
    wanted = select(dialect("ck-2025-11"), Selection(archs=("gfx950",), where=(where, "key.tile.bm0 == 64")))
    pattern = "dtype=bf16 hdim_q=128 mask=no,mask lse=false tile.bm0=64 dropout=*"
    assert kernels_of(kernel_set(pattern), "gfx950") == tuple(wanted)
    assert len(wanted) > 10
    assert kernels_of(kernel_set(pattern, pattern), "gfx950") == tuple(wanted)  # each once


@pytest.mark.parametrize(
    ("pattern", "upstream", "message"),
    [
        ("dtype=fp64", "aiter", "no kernel of gfx950 fits 'dtype=fp64'"),
        ("dtyp=bf16", "aiter", "'dtyp' is not a field"),
        ("bf16", "aiter", "'bf16' is not FIELD=VALUE"),
        ("lse=true lse=false", "aiter", "stands there twice"),
    ],
)
def test_pattern_that_means_nothing_is_refused(pattern: str, upstream: str, message: str) -> None:
    with pytest.raises(InputError, match=r"^program\.cpp:3: mine: ") as failure:
        kernels_of(kernel_set(pattern, upstream=upstream), "gfx950")
    assert message in str(failure.value)


def test_command_lists_set_upstream_and_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cpp", "kernels", str(PROGRAM)]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    name, upstream, kernel = line.split()
    assert (name, upstream) == ("prefill", "aiter")
    assert kernel.startswith("fmha_batch_prefill_d128_bf16_group_b64x128x64x128x64x128_")
    assert kernel.endswith("_nlogits_nbias_nmask_nlse_ndropout_nsquant")

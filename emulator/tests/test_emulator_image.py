"""Code objects are read as the compiler made them, and damaged ones are refused with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckpm_emulator import code_object, image
from ckpm_emulator.cli import main
from ckpm_emulator.errors import CodeObjectError
from ckpm_emulator.inspection import coverage
from emulator_small import small_library


@pytest.fixture(scope="module")
def objects() -> dict[str, bytes]:
    return dict(code_object.code_objects(small_library()))


def test_every_arch_is_found(objects: dict[str, bytes]) -> None:
    assert sorted(target.partition(":")[0] for target in objects) == ["gfx942", "gfx950"]


@pytest.mark.parametrize("arch", [942, 950])
def test_kernels(objects: dict[str, bytes], arch: int) -> None:
    read = image.read(objects[f"gfx{arch}"])
    assert read.arch == arch
    assert read.kernels
    for kernel in read.kernels:
        assert 0 <= kernel.function.address - read.text_address < len(read.text)
        assert kernel.kernarg_bytes >= max((offset + size for offset, size in kernel.arguments), default=0)
        assert kernel.rsrc2 >> 7 & 1  # every HIP kernel asks for its workgroup's x


def test_unknown_arch(objects: dict[str, bytes]) -> None:
    unknown = bytearray(objects["gfx950"].replace(b"amdhsa--gfx950", b"amdhsa--gfx000"))
    unknown[48] = 0xFF  # e_flags: no machine of today
    with pytest.raises(CodeObjectError, match="it is for 'gfx000'"):
        image.read(bytes(unknown))


def test_coverage(capsys: pytest.CaptureFixture[str]) -> None:
    library = small_library()
    covered = coverage.cover(library)
    assert (covered.kernels > 0, covered.missing) == (True, {})
    assert covered.opcodes["SOPP", "s_endpgm"] >= covered.kernels
    assert main(["coverage", str(library)]) == 0
    assert "nothing missing" in capsys.readouterr().out


def test_coverage_of_bad_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["coverage", str(tmp_path / "missing")]) == CodeObjectError.exit_code
    assert capsys.readouterr().err.startswith("error: ")

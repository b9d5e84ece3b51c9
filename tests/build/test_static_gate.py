"""The static gate on a real library for two archs: nothing is blamed, and a wait taken out of its code is."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.inspection.inspect import inspect
from kernels.build.manifest import Manifest
from reports.errors import GateError
from reports.gates import static as static_gate
from reports.gates.comparing import compare, read_thresholds
from reports.verdicts import Gate

ARCHS = ("gfx942", "gfx950")
WAIT_FOR_ALL_LOADS = (0xBF8C0F70).to_bytes(4, "little")  # s_waitcnt vmcnt(0), as LLVM's assembler writes it
NOTHING = (0xBF800000).to_bytes(4, "little")  # s_nop 0


@pytest.mark.parametrize("arch", ARCHS)
def test_a_real_kernel_is_measured_and_not_blamed(built: Path, arch: str) -> None:
    manifest = Manifest.read(built / "manifest.json")
    figures = static_gate.figures(built / "libckpm.so", manifest, arch)
    assert set(figures) == set(manifest.kernels)
    for name, found in figures.items():
        assert found["vgpr"] == manifest.kernels[name].archs[arch].vgpr
        assert found["loop_mfma"] > 0
        assert found["loop_barriers"] > 0
        assert found["wait_hazards"] == 0
    again = static_gate.figures(built / "libckpm.so", manifest, arch)
    assert Gate.of(compare("static", figures, again, read_thresholds()), {}).verdict == "unchanged"


@pytest.mark.parametrize("arch", ARCHS)
def test_a_wait_taken_out_of_the_code_is_found(built: Path, tmp_path: Path, arch: str) -> None:
    whole = (built / "libckpm.so").read_bytes()
    assert WAIT_FOR_ALL_LOADS in whole
    damaged = tmp_path / "libckpm.so"
    damaged.write_bytes(whole.replace(WAIT_FOR_ALL_LOADS, NOTHING))
    assert all(kernel.hazards for kernel in inspect(damaged, arch))
    with pytest.raises(GateError, match="has other machine code in the library"):
        static_gate.figures(damaged, Manifest.read(built / "manifest.json"), arch)

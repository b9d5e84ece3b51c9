"""The phases of a wave on the timing model: parts between one barrier or priority and the next, and their cycles."""

from __future__ import annotations

from typing import Any

from ckpm_emulator.device import EmulatedGpu
from emulator_child import on_device
from tests.emulated.timing_streams import SPLIT, Stream, adds, mfma

GFX950 = on_device("gfx950")
EXPONENTIAL = "v_exp_f32 v10, v11\n"


def phases(device: EmulatedGpu, body: str, threads: int = 64, wave: int = 0) -> dict[str, Any]:
    by_name: dict[str, Any] = Stream(device, body, threads=threads).replay(barrier_cycles=9)["waves"][wave]["phases"]
    return by_name


def cycles_of(phase: dict[str, Any]) -> int:
    return sum((phase["issued"], *phase["stalls"].values()))


@GFX950
def test_phases_between_barriers_are_named_by_their_work(device: EmulatedGpu) -> None:
    """A wave alone opens a barrier itself, 9 cycles after its slot of 4: they belong to the part that it ends."""
    barrier = "s_barrier\n"
    measured = phases(
        device,
        adds(2) + barrier + mfma(0) * 2 + barrier + EXPONENTIAL + adds(3) + barrier + adds(5) + barrier
        + mfma(0) + EXPONENTIAL + "s_nop 0\n" + mfma(0) + adds(1),
    )  # fmt: skip
    assert list(measured) == ["prologue", "matrix", "softmax", "mixed", "other", "epilogue"]
    assert [phase["parts"] for phase in measured.values()] == [1] * 6
    waits = {name: phase["stalls"]["barrier"] for name, phase in measured.items()}
    assert waits == {"prologue": 9, "matrix": 9, "softmax": 9, "mixed": 0, "other": 9, "epilogue": 0}
    assert [cycles_of(measured[name]) for name in ("prologue", "softmax", "other")] == [21, 8 + 3 * 4 + 4 + 9, 33]
    assert (measured["matrix"]["matrix"], measured["mixed"]["matrix"], measured["softmax"]["matrix"]) == (64, 64, 0)
    assert measured["epilogue"]["instructions"] == 2  # the addition after the last MFMA, and s_endpgm


@GFX950
def test_stalls_before_part_belong_to_that_part(device: EmulatedGpu) -> None:
    """The result is there in cycle 48; the MFMA's slot, the barrier's slot and its 9 cycles are over in cycle 17."""
    body = mfma(0) + "s_barrier\nv_accvgpr_read_b32 v20, a3\n" + EXPONENTIAL + "s_barrier\n" + mfma(0)
    measured = phases(device, body)
    waits = {name: phase["stalls"]["matrix_result"] for name, phase in measured.items() if name != "prologue"}
    assert waits == {"matrix": 0, "softmax": 48 - 17, "epilogue": 0}


@GFX950
def test_priority_ends_part_too(device: EmulatedGpu) -> None:
    body = "s_setprio 1\n" + mfma(0) + "s_setprio 0\n" + EXPONENTIAL + "s_setprio 1\n" + mfma(0)
    assert {name: phase["parts"] for name, phase in phases(device, body).items()} == {
        "prologue": 1, "matrix": 2, "softmax": 1, "epilogue": 1,
    }  # fmt: skip
    together = phases(device, body.replace("s_setprio", "s_nop"))
    assert {name: phase["parts"] for name, phase in together.items()} == {"prologue": 1, "mixed": 1, "epilogue": 1}


@GFX950
def test_without_limit_prologue_ends_at_first_mfma(device: EmulatedGpu) -> None:
    measured = phases(device, EXPONENTIAL + adds(3) + mfma(0) + adds(2))
    assert (measured["prologue"]["instructions"], measured["matrix"]["instructions"]) == (4, 1)
    assert list(phases(device, adds(4))) == ["prologue"]


@GFX950
def test_phases_add_up_to_wave(device: EmulatedGpu) -> None:
    """Two groups that take turns: what each waits at the barriers for is counted once."""
    turns = (mfma(0) * 3 + "s_barrier\n" + EXPONENTIAL * 2 + "s_barrier\n") * 3
    body = SPLIT + turns + "s_endpgm\nother:\ns_barrier\n" + turns
    replayed = Stream(device, body, threads=512).replay()
    for wave in replayed["waves"]:
        own = wave["phases"].values()
        assert sum(cycles_of(phase) for phase in own) == wave["end"]
        for name in ("instructions", "issued", "matrix", "vector"):
            assert sum(phase[name] for phase in own) == wave[name]
        for cause, cycles in wave["stalls"].items():
            assert sum(phase["stalls"][cause] for phase in own) == cycles
    assert replayed["waves"][4]["phases"]["matrix"]["parts"] == 3

"""The timing model's rules, each on a stream whose cycles follow from the published figures by hand.

On gfx950 an instruction has a slot of 4 cycles. MFMA 32x32x16 has 8 passes of 4 cycles, and 16x16x32 has 4. Vector
instructions run beside it after its first 8 cycles, packed ones 12 cycles after it. LDS reads 256 bytes a cycle.
"""

from __future__ import annotations

import itertools

import pytest

from ckpm.timing.machine import numbers, values
from ckpm_emulator.device import EmulatedGpu
from ckpm_emulator.errors import DeviceError
from ckpm_emulator.options import Record
from emulator_assembly import assemble, launch
from emulator_child import on_device
from tests.emulated.timing_streams import ADDRESS, END, SPLIT, Stream, Timeline, adds, mfma

GFX950 = on_device("gfx950")


READ = "v_accvgpr_read_b32 v20, a3"
FP8 = "v_mfma_f32_32x32x64_f8f6f4 a[0:15], v[16:23], v[24:31], a[0:15]\n"
EXP, PACKED = "v_exp_f32 v10, v11\n", "v_pk_mul_f32 v[10:11], v[12:13], v[14:15]\n"
SCALAR_LOAD = "s_load_dwordx2 s[4:5], s[0:1], 0x0\n"


def count_down(passes: int, body: str = "", name: str = "loop") -> str:
    return f"s_mov_b32 s8, {passes}\n{name}:\n{body}s_sub_u32 s8, s8, 1\ns_cmp_lg_u32 s8, 0\ns_cbranch_scc1 {name}"


# the stream, numbers of the machine that are changed, and its cycles
CYCLES: dict[str, tuple[str, dict[str, int], int]] = {
    "MFMAs at the rate of 8 passes": ((mfma(0) + mfma(16)) * 5, {}, 10 * 32),
    "MFMAs at the rate of 4 passes": ((mfma(0, shape="16x16x32") + mfma(4, shape="16x16x32")) * 5, {}, 10 * 16),
    "accumulation does not wait for its result": (mfma(0) * 10, {}, 10 * 32),
    # LLVM's 12 wait states of 4 cycles after 8 passes, for VALU, a factor, and a part of the addend
    "a VALU waits for the result": (mfma(0) + READ, {}, 48 + 4 + END),
    "a factor waits for the result": (mfma(0) + mfma(16, factor="a[0:3]"), {}, 48 + 32),
    "a part of the addend waits": (mfma(0) + mfma(20, shape="16x16x32", addend=4), {}, 48 + 16),
    "a result without wait states": (mfma(0) + READ, {"matrix_result_cycles": 0}, 32 + 4 + END),
    "another register is not overwritten": (mfma(0) + "v_mov_b32 v0, v9", {}, 32),
    "an overwritten result": (mfma(0) + "v_accvgpr_write_b32 a3, v9", {}, 48 + 4 + END),
    # 24 of 32 cycles, 4 each; a seventh makes the next MFMA late
    "six vector instructions fit beside an MFMA": ((mfma(0) + adds(6)) * 16, {}, 16 * 32 + END),
    "seven are one too many": ((mfma(0) + adds(7)) * 16, {}, 16 * 36 + END),
    "seven fit where factors are read sooner": ((mfma(0) + adds(7)) * 16, {"matrix_read_cycles": 4}, 16 * 32 + END),
    # LLVM: 16 passes of 4 cycles. Its factors are 16 registers, those of 32x32x16 in bf16 eight.
    "12 fit beside fp8 over 64 columns": ((FP8 + adds(12)) * 16, {}, 16 * 64 + END),
    "13 do not": ((FP8 + adds(13)) * 16, {}, 16 * 68 + END),
    "three transcendental ones fit": ((mfma(0) + EXP * 3) * 8, {}, 8 * 32),  # s_endpgm is beside the last one
    "three of 12 cycles do not": ((mfma(0) + EXP * 3) * 8, {"transcendental_cycles": 12}, 8 * 44),
    "four transcendental ones do not": ((mfma(0) + EXP * 4) * 8, {}, 8 * 40),
    "packed ones keep away from an MFMA": (mfma(0) + PACKED * 2, {}, 32 + 12 + 2 * 4 + END),
    "packed ones that need not": (mfma(0) + PACKED * 2, {"packed_after_matrix": 0}, 32 + 2 * 4 + END),
    "a packed one before an MFMA": (PACKED + mfma(0), {}, 4 + 32),
    "s_nop of one": ("s_nop 0", {}, 4 + END),
    "s_nop of eight": ("s_nop 7", {}, 8 * 4 + END),
    "s_sleep": ("s_sleep 2", {}, 4 + 2 * 64 + END),
    "s_nop before a result": (mfma(0) + f"s_nop 15\n{READ}", {}, 4 + 16 * 4 + 4 + END),
    "swaps of lanes": ("v_permlane32_swap_b32 v10, v11\n" * 3 + adds(1), {}, 3 * 20 + 4 + END),
    "a branch that is not taken": (count_down(1), {}, 4 + 3 * 4 + END),
    "branches that are taken": (count_down(5), {}, 4 + 5 * 3 * 4 + 4 * (16 - 4) + END),
    "slower branches": (count_down(5), {"branch_cycles": 32}, 4 + 5 * 3 * 4 + 4 * (32 - 4) + END),
    # a dependent v_fma_f32 takes 8 cycles (AMDLatencyModel.cpp), an independent one its slot of 4
    "a chain of vector instructions": ("v_fma_f32 v10, v11, v12, v10\n" * 10, {}, 9 * 8 + 4 + END),
    "vector instructions apart": ("v_fma_f32 v10, v11, v12, v13\n" * 10, {}, 10 * 4 + END),
    "a chain of transcendental ones": (EXP + "v_exp_f32 v12, v10", {}, 12 + 8),
    "lgkmcnt waits for scalar loads": (
        SCALAR_LOAD + "s_waitcnt lgkmcnt(0)", {"scalar_memory_latency": 300}, 300 + END),
    "vmcnt does not": (SCALAR_LOAD + "s_waitcnt vmcnt(0)", {"scalar_memory_latency": 300}, 2 * 4 + END),
}  # fmt: skip


@pytest.mark.parametrize("name", CYCLES)
@GFX950
def test_stream_takes_its_cycles(device: EmulatedGpu, name: str) -> None:
    body, changes, cycles = CYCLES[name]
    assert Stream(device, body).cycles(**changes) == cycles


@GFX950
def test_four_simds_work_at_once_and_two_waves_share_one(device: EmulatedGpu) -> None:
    body = mfma(0) * 10
    assert Stream(device, body, threads=256).cycles() == 320
    assert Stream(device, body, threads=320).cycles() == 640
    assert Stream(device, body, threads=512).cycles() == 640


@GFX950
def test_two_waves_of_simd_take_turns(device: EmulatedGpu) -> None:
    """Waves 0 and 4 have eight instructions each, on one port: its turn comes to each second time."""
    assert Stream(device, adds(8)).cycles() == 8 * 4 + END
    both = Stream(device, adds(8), threads=320).replay()
    assert both["cycles"] == 16 * 4 + END
    assert [both["waves"][wave]["end"] for wave in (0, 4)] == [15 * 4 + END, 16 * 4 + END]
    assert both["waves"][0]["stalls"]["issue_conflict"] == 7 * 4
    assert both["waves"][1]["end"] == 8 * 4 + END  # alone on SIMD 1


@GFX950
def test_different_kinds_of_two_waves_go_together(device: EmulatedGpu) -> None:
    """A vector instruction of one wave and a scalar one of the other in the same cycle."""
    body = SPLIT + adds(40) + "s_endpgm\nother:\n" + "s_mov_b32 s8, 0\n" * 20
    assert Stream(device, body, threads=320).cycles() == Stream(device, body, threads=256).cycles() == 3 * 4 + 160 + END


@GFX950
def test_another_waves_vector_instructions_run_beside_mfmas(device: EmulatedGpu) -> None:
    """Eight MFMAs leave 8 * 24 cycles: room for 40 vector instructions of wave 4, and none for 60."""

    def cycles(count: int, threads: int) -> int:
        return Stream(device, SPLIT + mfma(0) * 8 + "s_endpgm\nother:\n" + adds(count), threads=threads).cycles()

    assert cycles(40, 320) == cycles(40, 256)
    assert cycles(60, 320) >= cycles(60, 256) + (60 - 48) * 4


@GFX950
def test_packed_instructions_and_another_waves_mfmas(device: EmulatedGpu) -> None:
    """The first comes in after wave 0's second MFMA, then one after each; all but the last make the next late."""
    stream = Stream(device, SPLIT + mfma(0) * 9 + "s_endpgm\nother:\n" + PACKED * 8, threads=320)
    apart, together = (stream.replay(packed_apart=switch)["waves"] for switch in (1, 0))
    assert apart[4]["stalls"]["packed"] > 7 * 24
    assert apart[0]["end"] == apart[1]["end"] + 7 * 4
    assert together[4]["stalls"]["packed"] == 0
    assert together[0]["end"] == together[1]["end"]


@pytest.mark.parametrize(("matrices", "units"), [(1, 6), (2, 14), (4, 33), (16, 96), (16, 97), (16, 132), (3, 40)])
@GFX950
def test_published_optimum_of_matrix_and_vector_work(device: EmulatedGpu, matrices: int, units: int) -> None:
    """T = 32 M + g(N - 6 M): gfx950-gluon-tutorials, mfma_coissue_scheduling.md, on the schedule of its proof."""
    left = max(0, units - 6 * matrices)
    exposed = 4 * left if left <= 3 else 4 * left - 4 * ((left - 3) // 2)
    alone = left if left <= 3 else 3 + (left - 3) % 2
    body = "".join(mfma(0) + adds(min(6, max(0, units - 6 * matrix))) for matrix in range(matrices))
    body += adds(alone) + PACKED * ((left - alone) // 2)
    assert Stream(device, body).cycles() - END == 32 * matrices + exposed


@GFX950
def test_barrier_waits_for_last_wave(device: EmulatedGpu) -> None:
    """Wave 4 is 100 slots longer under way than the others, and its SIMD's wave 0 no less."""
    body = SPLIT + "s_barrier\ns_endpgm\nother:\n" + "s_nop 9\n" * 10 + "s_barrier"
    waves = Stream(device, body, threads=320).replay(barrier_cycles=0)["waves"]
    early = 4 * 4 + (16 - 4) + 10 * 40 + 4 - 4 * 4  # the other's way: a taken branch, the nops
    assert waves[1]["stalls"]["barrier"] == early
    assert waves[4]["stalls"]["barrier"] == 0
    assert Stream(device, body, threads=320).replay(barrier_cycles=9)["waves"][4]["stalls"]["barrier"] == 9


@GFX950
def test_wave_that_has_ended_is_not_waited_for(device: EmulatedGpu) -> None:
    body = SPLIT + "s_nop 15\ns_endpgm\nother:\ns_barrier\n"
    waves = Stream(device, body, threads=320).replay(barrier_cycles=0)["waves"]
    assert waves[4]["stalls"]["barrier"] == max(waves[wave]["end"] for wave in range(4)) - (4 + 3 * 4 + 12 + 4)


@GFX950
def test_wait_for_memory_takes_its_latency(device: EmulatedGpu) -> None:
    """64 lanes of 16 bytes: 8 lines of 2 cycles, or 1,024 bytes at 64 a cycle; both 16."""
    stream = Stream(device, ADDRESS + "global_load_dwordx4 v[4:7], v1, s[4:5]\ns_waitcnt vmcnt(0)")
    wave = stream.replay(memory_latency=500)["waves"][0]
    assert wave["stalls"]["wait_memory"] == 16 + 500 - 4 - 4
    assert stream.cycles(memory_latency=700) - stream.cycles(memory_latency=500) == 200


@GFX950
def test_vmcnt_lets_newest_fly(device: EmulatedGpu) -> None:
    loads = "".join(f"global_load_dwordx4 v[{4 * load}:{4 * load + 3}], v1, s[4:5]\n" for load in range(1, 5))
    waits = [Stream(device, f"{ADDRESS}{loads}s_waitcnt vmcnt({left})").cycles() for left in range(5)]
    assert [longer - shorter for longer, shorter in itertools.pairwise(waits)][:3] == [16, 16, 16]
    assert waits[4] == Stream(device, ADDRESS + loads).cycles() + 4


@GFX950
def test_loads_in_flight_are_bounded(device: EmulatedGpu) -> None:
    """44 loads of 1 KB; each holds its place for 16 cycles of transfer and the latency."""

    def cycles(count: int) -> int:
        return Stream(device, ADDRESS + "global_load_dwordx4 v[4:7], v1, s[4:5]\n" * count).cycles()

    assert cycles(44) == cycles(4) + 40 * 4
    assert cycles(176) - cycles(88) == 2 * (1000 + 16)


@GFX950
def test_waves_that_wait_for_room_do_not_issue_in_past(device: EmulatedGpu) -> None:
    """Eight waves share the 44 places: what one of them frees, the others get from that cycle on."""

    def cycles(count: int) -> int:
        body = ADDRESS + "global_load_dwordx4 v[4:7], v1, s[4:5]\n" * count
        return Stream(device, body, threads=512).cycles()

    assert cycles(44) - cycles(22) == 8 * 22 * (1000 + 16) // 44


@pytest.mark.parametrize(
    ("instruction", "shift", "waves", "each"),
    [
        ("ds_read_b128 v[4:7], v1", 4, 4, 16),
        ("ds_read_b64 v[4:5], v1", 3, 4, 8),
        ("ds_read_b128 v[4:7], v1", 4, 1, 8),
        ("ds_read_b128 v[4:7], v1", 5, 4, 32),  # every second bank: a conflict of two
        ("ds_write_b128 v1, v[4:7]", 4, 4, 32),
    ],
)
@GFX950
def test_lds_serves_at_its_published_rate(
    device: EmulatedGpu, instruction: str, shift: int, waves: int, each: int
) -> None:
    def cycles(count: int) -> int:
        body = f"v_lshlrev_b32 v1, {shift}, v0\n" + f"{instruction}\n" * count
        return Stream(device, body, threads=64 * waves).cycles()

    assert cycles(96) - cycles(64) == 32 * each


@GFX950
def test_queue_of_lds_takes_burst(device: EmulatedGpu) -> None:
    read = "v_lshlrev_b32 v1, 4, v0\n" + "ds_read_b128 v[4:7], v1\n" * 12
    stream = Stream(device, read)
    assert stream.replay()["waves"][0]["stalls"]["lds_queue"] == 0
    assert stream.replay(lds_queue=4)["waves"][0]["stalls"]["lds_queue"] > 0
    assert Stream(device, read + "ds_read_b128 v[4:7], v1\n" * 20).replay()["waves"][0]["stalls"]["lds_queue"] > 0


@GFX950
def test_data_of_lds_are_back_after_64_cycles(device: EmulatedGpu) -> None:
    """4 cycles of addresses, 8 on the bus and 52 of return: the middle of the 50 to 70 that traces show."""
    stream = Stream(device, "v_lshlrev_b32 v1, 4, v0\nds_read_b128 v[4:7], v1\ns_waitcnt lgkmcnt(0)")
    assert stream.cycles(vector_result_cycles=4) == 4 + 64 + END


@GFX950
def test_second_copy_starts_later_by_offset(device: EmulatedGpu) -> None:
    stream = Stream(device, mfma(0) * 10)
    assert stream.replay(workgroups=2)["cycles"] == 640
    assert stream.replay(workgroups=2, start_offset=1000)["cycles"] == 1320


@GFX950
def test_loads_to_lds_write_there_when_they_arrive(device: EmulatedGpu) -> None:
    """Then LDS is busy: for 64 cycles at 16 bytes each, and 4 of the read, where it was 4 of addresses and 8 of bus."""
    load = "s_mov_b32 m0, 0\nglobal_load_lds_dwordx4 v1, s[4:5]\ns_waitcnt vmcnt(0)\n"
    read = "ds_read_b128 v[4:7], v1\ns_waitcnt lgkmcnt(0)"
    stream = Stream(device, ADDRESS + load + read)
    assert stream.cycles(lds_write_bytes=16) - stream.cycles(lds_write_bytes=1 << 20) == (64 + 4) - (4 + 8)


@GFX950
def test_higher_priority_goes_first(device: EmulatedGpu) -> None:
    body = SPLIT + adds(20) + "s_endpgm\nother:\ns_setprio {}\n" + adds(20)
    ends = [Stream(device, body.format(level), threads=320).replay()["waves"] for level in (0, 3)]
    assert ends[1][4]["stalls"]["issue_conflict"] <= 4
    assert ends[0][4]["stalls"]["issue_conflict"] > 10 * 4
    assert ends[1][0]["end"] > ends[1][4]["end"]


@GFX950
def test_copies_of_workgroup_have_their_own_barriers(device: EmulatedGpu) -> None:
    stream = Stream(device, mfma(0) * 10 + "s_barrier\n" + mfma(0) * 10, threads=256)
    single, two = stream.replay(barrier_cycles=0), stream.replay(workgroups=2, barrier_cycles=0)
    assert len(two["waves"]) == 8
    assert two["cycles"] == 2 * 20 * 32
    assert single["cycles"] == 20 * 32


@GFX950
def test_hot_loop_and_its_figures(device: EmulatedGpu) -> None:
    """A short loop runs more often; the one with the MFMAs is meant. A pass is four MFMAs and nothing beside them."""
    body = f"{count_down(50, name='short')}\n{count_down(9, mfma(0) * 4)}"
    replayed = Stream(device, body).replay()
    (wave,) = replayed["waves"]
    loop = wave["loop"]
    assert wave["hot"][1] - wave["hot"][0] == 4 * 8 + 8
    assert loop["passes"] == 8
    assert loop["end"] - loop["begin"] == 7 * 4 * 32
    assert loop["matrix"] == 7 * 4 * 32
    assert loop["issued"] + sum(loop["stalls"].values()) == loop["end"] - loop["begin"]


@GFX950
def test_two_groups_of_waves_have_loops_of_their_own(device: EmulatedGpu) -> None:
    body = SPLIT + count_down(9, mfma(0), "first") + "\ns_endpgm\nother:\n" + count_down(5, mfma(0) * 2, "second")
    waves = Stream(device, body, threads=320).replay()["waves"]
    assert [waves[wave]["loop"]["passes"] for wave in (0, 3, 4)] == [8, 8, 4]
    assert waves[4]["hot"][0] > waves[0]["hot"][1]
    assert Stream(device, adds(3)).replay()["waves"][0]["hot"] is None


@GFX950
def test_cycles_of_wave_add_up(device: EmulatedGpu) -> None:
    body = ADDRESS + "v_lshlrev_b32 v2, 4, v0\n"
    body += ("ds_read_b128 v[4:7], v2\n" + mfma(0) + adds(9) + "v_exp_f32 v10, v11\ns_waitcnt lgkmcnt(0)\n") * 6
    body += "global_load_dwordx4 v[4:7], v1, s[4:5]\ns_barrier\ns_waitcnt vmcnt(0)\nv_accvgpr_read_b32 v20, a3"
    for wave in Stream(device, body, threads=512).replay()["waves"]:
        assert wave["issued"] + sum(wave["stalls"].values()) == wave["end"]


@GFX950
def test_timeline_in_letters(device: EmulatedGpu) -> None:
    """Bins of 32 cycles: two MFMAs, one with vector work beside it, eight vector instructions, s_nop, the end."""
    body = mfma(0) * 2 + mfma(0) + adds(6) + adds(8) + "s_nop 7\n"
    (wave,) = Stream(device, body).replay(Timeline(count=7))["waves"]
    assert wave["timeline"] == "MMXVSS."


@GFX950
def test_waits_and_barriers_in_timeline(device: EmulatedGpu) -> None:
    body = SPLIT + "s_barrier\ns_endpgm\nother:\n" + ADDRESS + "s_barrier"
    waves = Stream(device, body, threads=320).replay(Timeline(start=64, count=3))["waves"]
    assert (waves[0]["timeline"], waves[4]["timeline"]) == ("BBB", "WWW")


@GFX950
def test_order_of_emulators_waves_does_not_matter(device: EmulatedGpu) -> None:
    body = ADDRESS + (mfma(0) + adds(3) + "s_barrier\n") * 5
    answers = []
    for order in (0, 1, 7):
        device.configure(wave_order=order)
        answers.append(Stream(device, body, threads=512).replay(Timeline(count=9)))
    device.configure(wave_order=0)
    assert answers[0] == answers[1] == answers[2]


@GFX950
def test_missing_unknown_or_senseless_numbers_are_refused(device: EmulatedGpu) -> None:
    stream = Stream(device, "s_nop 0")
    with pytest.raises(DeviceError, match="the timing model has no number 'cheese'"):
        stream.replay(cheese=1)
    with pytest.raises(DeviceError, match="the timing model's lds_queue can't be 0"):
        stream.replay(lds_queue=0)
    without = {name: number for name, number in values(numbers("gfx950")).items() if name != "workgroups"}
    with pytest.raises(DeviceError, match="the timing model needs workgroups"):
        device.replay(without)
    device.forget_recording()
    with pytest.raises(DeviceError, match="no workgroup was recorded"):
        stream.replay()


# Workgroup s2 executes s2 % 3 more instructions than the least.
UNEQUAL = "s_cmp_eq_u32 s2, 1\ns_cbranch_scc1 one\ns_cmp_eq_u32 s2, 2\ns_cbranch_scc1 two\ns_endpgm\n"
UNEQUAL += "two:\ns_nop 0\ns_nop 0\none:\ns_nop 0\ns_endpgm\n"


@GFX950
def test_longest_workgroup_is_recorded_or_chosen_one(device: EmulatedGpu) -> None:
    code = assemble(UNEQUAL, "gfx950")
    memory = device.malloc(4096)
    for threads in (1, 2):
        device.configure(threads=threads, record=Record())
        device.forget_recording()
        launch(device, code, memory, groups=3)
        assert device.recorded_workgroup() == {
            "kernel": "test_kernel",
            "workgroup": 2,
            "launched": 3,
            "instructions": [8],
        }
    device.configure(record=Record(workgroup=1))
    device.forget_recording()
    launch(device, code, memory, groups=3)
    assert device.recorded_workgroup() == {"kernel": "test_kernel", "workgroup": 1, "launched": 3, "instructions": [4]}
    device.configure(record=Record(kernel="another"))
    device.forget_recording()
    launch(device, code, memory, groups=3)
    assert device.recorded_workgroup() is None


@GFX950
def test_only_chosen_workgroup_runs(device: EmulatedGpu) -> None:
    device.configure(record=Record(workgroup=1, only=True))
    device.reset_counters()
    launch(device, assemble(UNEQUAL, "gfx950"), device.malloc(4096), groups=3)
    assert device.counters()["kernels"]["test_kernel"]["workgroups"] == 1
    device.configure(record=None)


@on_device("gfx942")
def test_gfx942_by_its_own_figures(device: EmulatedGpu) -> None:
    """28 of 32 cycles beside 32x32x8, 12 of 16 beside 16x16x16; 11 wait states after 8 passes."""
    large, small = mfma(0, shape="32x32x8"), mfma(0, shape="16x16x16")
    assert Stream(device, (large + adds(7)) * 8, arch="gfx942").cycles() == 8 * 32 + END
    assert Stream(device, (small + adds(3)) * 8, arch="gfx942").cycles() == 8 * 16 + END
    assert Stream(device, (small + adds(4)) * 8, arch="gfx942").cycles() == 8 * 20 + END
    assert Stream(device, large + "v_accvgpr_read_b32 v20, a3", arch="gfx942").cycles() == 44 + 4 + END


# Something of everything, so that no figure of the machine is without effect; each is seen at its rule above.
MIXED = (
    SPLIT
    + ADDRESS
    + "v_lshlrev_b32 v2, 4, v0\n"
    + "global_load_dwordx4 v[4:7], v1, s[4:5]\n" * 60
    + "global_load_dword v9, v2, s[4:5]\n" * 8
    + "s_waitcnt vmcnt(0)\n"
    + "ds_write_b128 v1, v[4:7]\n" * 20
    + "ds_read_b128 v[4:7], v1\n" * 20
    + "s_waitcnt lgkmcnt(0)\n"
    + (mfma(0) + "v_exp_f32 v10, v11\n" * 4 + "v_permlane32_swap_b32 v10, v11\n") * 3
    + "v_pk_mul_f32 v[10:11], v[12:13], v[14:15]\n" * 3
    + mfma(0)
    + "v_accvgpr_read_b32 v20, a3\ns_barrier\ns_branch other\ns_nop 0\nother:\n"
    + adds(3)
    + "v_fma_f32 v10, v11, v12, v10\n" * 4
)


@pytest.mark.parametrize("name", sorted(name for name, number in numbers("gfx950").items() if not number.switch))
@GFX950
def test_every_figure_counts(device: EmulatedGpu, name: str) -> None:
    stream = Stream(device, MIXED, threads=256)
    value = numbers("gfx950")[name].value
    changed = {stream.cycles(**{name: other}) for other in (max(value // 4, 1), 4 * value)}
    assert changed != {stream.cycles()}

"""The option ``probe``: what another instruction in the place of one would have changed, and where that ends.

In a process of its own, whose device takes programs with a second micro-op for one of the built.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from ckpm_emulator.base.errors import DeviceError
from ckpm_emulator.options import Options
from tests.emulator.emulator_assembly import assemble

ARCH = "gfx942"
START = "s_load_dwordx2 s[4:5], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\nv_lshlrev_b32_e32 v1, 2, v0\n"
STORE = "global_store_dword v1, v3, s[4:5]\ns_endpgm\n"
HALF_OF_IT = "s_mov_b32 s8, s4\ns_mov_b32 s9, s5\ns_mov_b32 s10, 128\ns_mov_b32 s11, 0x20000\n"  # lanes 0 to 31
LOAD = "global_load_dword v3, v1, s[4:5]\n"
NEIGHBOUR = "v_xor_b32_e32 v2, 0x100, v1\n"  # LDS of the other wave's lane
WRITE = "ds_write_b32 v1, v0\n"
READ = "ds_read_b32 v3, v2\ns_waitcnt lgkmcnt(0)\n"

# name: (before, built, the other instruction, after, what ends it: fate and the start of the instruction)
CASES: dict[str, tuple[str, str, str, str, set[tuple[str, str]]]] = {
    "the same result": ("", "v_and_b32_e32 v3, 0xff, v0", "v_and_b32_e32 v3, 0x1ff, v0", STORE, set()),
    "a bit that a mask takes away": (
        "", "v_or_b32_e32 v2, 1, v0", "v_or_b32_e32 v2, 3, v0",
        "v_and_b32_e32 v3, 4, v2\nv_mov_b32_e32 v2, 0\n" + STORE,
        {("masked", "v_and_b32"), ("overwritten", "v_mov_b32")}),
    "a bit that is stored": (
        "", "v_or_b32_e32 v2, 1, v0", "v_or_b32_e32 v2, 3, v0", "v_and_b32_e32 v3, 6, v2\n" + STORE,
        {("carried", "v_and_b32"), ("store", "global_store_dword")}),
    "what is written over": (
        "", "v_or_b32_e32 v3, 1, v0", "v_or_b32_e32 v3, 3, v0", "v_mov_b32_e32 v3, v0\n" + STORE,
        {("overwritten", "v_mov_b32")}),
    "what nothing reads": (
        "v_mov_b32_e32 v3, 0\n", "v_or_b32_e32 v2, 1, v0", "v_or_b32_e32 v2, 3, v0", STORE, {("left", "s_endpgm")}),
    "a condition for one of two equal numbers": (
        "v_mov_b32_e32 v3, 0\n", "s_cmp_eq_u32 s2, 0", "s_cmp_lg_u32 s2, 0",
        "s_cselect_b32 s6, s7, s7\ns_cmp_eq_u32 s2, 0\n" + STORE,
        {("masked", "s_cselect_b32"), ("overwritten", "s_cmp_eq_u32")}),
    "a condition for a jump": (
        "v_mov_b32_e32 v3, 0\n", "s_cmp_eq_u32 s2, 0", "s_cmp_lg_u32 s2, 0",
        "s_cbranch_scc1 1f\ns_nop 0\n1:\n" + STORE, {("jump", "s_cbranch_scc1")}),
    "lanes that a buffer's end leaves out": (
        HALF_OF_IT, "v_min_u32_e32 v3, 50, v0", "v_min_u32_e32 v3, 51, v0",
        "buffer_store_dword v3, v1, s[8:11], 0 offen\nv_mov_b32_e32 v3, 0\ns_endpgm\n",
        {("masked", "buffer_store_dword"), ("overwritten", "v_mov_b32")}),
    "lanes that a buffer has": (
        HALF_OF_IT, "v_min_u32_e32 v3, 30, v0", "v_min_u32_e32 v3, 31, v0",
        "buffer_store_dword v3, v1, s[8:11], 0 offen\ns_endpgm\n", {("store", "buffer_store_dword")}),
    "a wait that the next one does again": (
        LOAD, "s_waitcnt vmcnt(0)", "s_waitcnt vmcnt(63)", "v_mov_b32_e32 v4, 0\ns_waitcnt vmcnt(0)\n" + STORE,
        {("landed", "s_waitcnt")}),
    "the only wait": (
        LOAD, "s_waitcnt vmcnt(0)", "s_waitcnt vmcnt(63)", STORE, {("store", "global_store_dword")}),
    "a wait for a store alone": (
        "global_store_dword v1, v0, s[4:5]\nv_mov_b32_e32 v3, v0\n", "s_waitcnt vmcnt(0)", "s_waitcnt vmcnt(63)", STORE,
        set()),
    "a wait for LDS that the next one does again": (
        NEIGHBOUR + WRITE, "s_waitcnt lgkmcnt(0)", "s_waitcnt lgkmcnt(15)",
        "s_waitcnt lgkmcnt(0)\ns_barrier\n" + READ + STORE, {("landed", "s_waitcnt")}),
    "the only wait for LDS before a barrier": (
        NEIGHBOUR + WRITE, "s_waitcnt lgkmcnt(0)", "s_waitcnt lgkmcnt(15)", "s_barrier\n" + READ + STORE,
        {("carried", "s_waitcnt"), ("store", "global_store_dword")}),
    "a lane that is spilled and not read": (
        "v_mov_b32_e32 v3, 0\n", "v_writelane_b32 v2, s4, 3", "v_writelane_b32 v2, s4, 4",
        "v_readlane_b32 s6, v2, 5\nv_mov_b32_e32 v2, 0\n" + STORE, {("overwritten", "v_mov_b32")}),
}  # fmt: skip

RUNS = """
import dataclasses, hashlib, json, sys
from ckpm_emulator import image
from ckpm_emulator.device import EmulatedGpu
from ckpm_emulator.lowering.blob import make_blob
from ckpm_emulator.lowering.decode import decode_function
from ckpm_emulator.lowering.lower import beside, lower
from tests.emulator.emulator_assembly import launch

def instructions(elf):
    read = image.read(elf)
    return read, list(decode_function(read, read.functions[0]))

programs, answers = {}, {}
device = None
for name, built, other in json.load(open(sys.argv[1])):
    built, other = bytes.fromhex(built), bytes.fromhex(other)
    (read, code), (_, changed) = instructions(built), instructions(other)
    (at,) = [i for i, one in enumerate(code) if one.text != changed[i].text]
    program = beside(lower(code), at, changed[at])
    spans = {read.functions[0].name: (0, len(code))}
    programs[hashlib.sha256(built).digest()] = make_blob(read, program, spans, {})
    if device is None:
        device = EmulatedGpu(
            sys.argv[2], threads=1, program_builder=lambda elf: programs[hashlib.sha256(elf).digest()]
        )
    memory, results = device.malloc(4 * 128), []
    for probe in (False, True):
        device.configure(probe=probe, late_loads="wait" in name)
        device.fill(memory, 0)
        device.reset_probe()
        launch(device, built, memory, threads=128)
        results.append((device.read(memory, "u4").tolist(), device.probe()))
    assert results[0][0] == results[1][0]
    assert results[0][1]["executions"] == 0
    answers[name] = results[1][1]
print(json.dumps(answers))
"""


@functools.cache
def answers() -> dict[str, Any]:
    """The probe's counts of each case; the script asserts that memory is as without it."""
    codes = []
    for name, (before, built, other, after, _) in CASES.items():
        pair = (assemble(f"{START}{before}{one}\n{after}", ARCH, 1024).hex() for one in (built, other))
        codes.append((name, *pair))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "codes.json")
        file.write_text(json.dumps(codes))
        words = [sys.executable, "-c", RUNS, str(file), ARCH]
        done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("name", CASES)
def test_difference_is_followed_to_its_end(name: str) -> None:
    said = answers()[name]
    wanted = CASES[name][-1]
    fates = {(one["fate"], one["text"]) for one in said["fates"]}
    for fate, start in wanted:
        assert any(fate == own and text.startswith(start) for own, text in fates), fates
    decided = {fate for fate, _ in fates} & {"jump", "store", "mode", "faulted"}
    assert decided == {fate for fate, _ in wanted} & {"jump", "store", "mode", "faulted"}
    assert said["executions"] in ((1, 2) if decided else (2,))  # by two waves, until something is decided
    assert (said["different"] > 0) == bool(wanted)


def test_sources_of_built_instruction_are_given() -> None:
    assert answers()["the same result"]["sources"] == [None, [0, 127], None]


def test_probe_with_check_of_unwritten_registers_is_refused() -> None:
    with pytest.raises(DeviceError, match="choose one"):
        Options(probe=True, uninitialised=True)

"""Each planted mistake is reported at its line, and the same kernel without the mistake passes all checks."""

from __future__ import annotations

import re

import pytest

from programs.program_builder import SOURCES, sample
from programs.test_programs import output, run

LINES = "-gline-tables-only"
UNKNOWN = "uninitialised fault: what is stored"
JUMP = "uninitialised fault: where this jumps"
LANES = "stores another value at"
# A part of each kernel's report, and one of the source's line; empty: the report has no line.
MISTAKES = {
    "selected": (UNKNOWN, "in[i] == 5 ? 1 : 2"),
    "least": (UNKNOWN, "fminf"),
    "added": ("uninitialised fault: what this atomic changes", "atomicAdd"),
    "voted": (UNKNOWN, "__any"),
    "branched": (JUMP, "if(in["),
    "counted": (JUMP, "i < in["),
    "copied": ("uninitialised_memory: a copy of 1024 bytes to the host has 512 that were never written", ""),
    "copied_structures": ("to the host has 512 that were never written, from byte 512", ""),
    "local_select": (UNKNOWN, "local[4 + word[0]]"),
    "vector_overwritten": ("was overwritten before this wait for a load that writes it again", "asm volatile"),
    "misaligned": ("alignment fault: atomic of 4 bytes", "atomicAdd"),
    "lanes_of_lds": (LANES, "s = wrong"),
    "lanes_of_memory": (LANES, "= wrong ? threadIdx.x"),
    "atomic_and_store": ("race fault: store", "*word = 7"),
    "atomic_and_load": ("race fault: load", "out[1] = *word"),
    "store_and_atomic": ("race fault: atomic", "__hip_atomic_fetch_add(word"),
    "swapped": ("race fault: store", "*word = 5"),
    "atomic_of_lds_and_load": ("race fault: no barrier", "= s;"),
    "flag": ("race fault: load", "out[0] = word[0]"),
    "waves_of_lds": ("race fault: no barrier", "s[threadIdx.x ^ 64]"),
    "groups_of_memory": ("race fault: store", "word[threadIdx.x + (wrong"),
    "shuffled": (UNKNOWN, "= other;"),
    "reduced": (UNKNOWN, "out[blockIdx.x] = value"),
    "divergent": ("barrier fault: lanes are off", "__syncthreads()"),
}
BY_ONE_LINE = ("groups_of_memory", "vector_overwritten")
REPORTED_TWICE = ("atomic_and_store", "flag", "waves_of_lds", "groups_of_memory", "vector_overwritten")


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("name", MISTAKES)
def test_planted_mistake_is_reported_at_its_line(name: str, arch: str) -> None:
    expected, text = MISTAKES[name]
    done = run(sample("planted", LINES), name, options=("--arch", arch, "--checks", "all"))
    report = done.stderr.decode()
    assert expected in report
    assert done.returncode != 0
    places = re.findall(r"planted\.hip:(\d+)", report)
    source = (SOURCES / "planted.hip").read_text().splitlines()
    assert text == "" or any(text in source[int(line) - 1] for line in places)
    if name in REPORTED_TWICE:
        assert len(places if name in BY_ONE_LINE else set(places)) == 2  # both accesses


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("name", MISTAKES)
def test_kernel_without_planted_mistake_passes_all_checks(name: str, arch: str) -> None:
    output(sample("planted", LINES), name, "right", options=("--arch", arch, "--checks", "all"))

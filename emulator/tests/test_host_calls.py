"""Requests of kernels to the host, packet by packet: printing, memory, functions. And the traps that end kernels.

Words and answers are those of ROCm's device library (ockl/src/services.cl); what is printed is compared with the C
library's own printf. Real programs over the real library are in emulator/programs.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpm_emulator.device import EmulatedGpu
from ckpm_emulator.faults import DeviceFaultError, FaultReport
from emulator_assembly import assemble, launch
from emulator_child import on_device
from programs.clang import compile_source

SOURCE = Path(__file__).parent / "data" / "host_calls.c"
ARCH = "gfx950"
LANES, WORDS, PAYLOAD = 64, 8, 7
FUNCTION, PRINTF, MEMORY = 1, 2, 3
BEGIN, END = 1, 2
STDOUT, STDERR = 0, 1
ABSENT = (1 << 64) - 1  # a lane that takes no part
NEAREST, UP = 0, 0b0101  # of MODE: for f32, and for f64 and f16

Words = npt.NDArray[np.uint64]


@functools.cache
def code() -> bytes:
    return compile_source(SOURCE, ARCH, "-x", "c", "-std=c17", "-O2")


def ask(
    device: EmulatedGpu, service: int, packets: Sequence[Sequence[Sequence[int]]], rounding: int = NEAREST
) -> Words:
    """The two words that each lane got for each packet. Raises DeviceFaultError."""
    given_words = np.full((len(packets), LANES, WORDS), ABSENT, np.uint64)
    for n, packet in enumerate(packets):
        for lane, payload in enumerate(packet):
            if payload:
                given_words[n, lane] = [*payload, *[0] * (WORDS - len(payload))]
    answers = np.zeros((len(packets), LANES, 2), np.uint64)
    buffer = device.upload(np.concatenate([given_words.ravel(), answers.ravel()]), "words")
    module = device.load_module(code())
    try:
        arguments = [ctypes.c_uint64(buffer.address), ctypes.c_uint64(len(packets))]
        module.launch("test_kernel", (1,), (LANES,), [*arguments, ctypes.c_uint32(service), ctypes.c_uint32(rounding)])
        return device.read(buffer, np.uint64)[given_words.size :].reshape(answers.shape)
    finally:
        device.clear_fault()
        module.unload()
        device.free(buffer)


def refusal(device: EmulatedGpu, service: int, payload: Sequence[int]) -> FaultReport:
    """The fault of a launch whose first lane asks for this."""
    with pytest.raises(DeviceFaultError) as caught:
        ask(device, service, [[payload]])
    assert caught.value.fault
    return caught.value.fault


def words_of(text: bytes) -> list[int]:
    """A string in whole words, with at least one zero after it."""
    padded = text + bytes(8 - len(text) % 8)
    return list(struct.unpack(f"<{len(padded) // 8}Q", padded))


def message(stream: int, text: bytes, *values: int | float | bytes) -> list[list[int]]:
    """The packets of a print, from the first on."""
    payload = [stream, *words_of(text)]
    for value in values:
        if isinstance(value, bytes):
            payload += words_of(value)
        else:
            payload += struct.unpack("<Q", struct.pack("<d" if isinstance(value, float) else "<q", value))
    pieces = [payload[at : at + PAYLOAD] for at in range(0, len(payload), PAYLOAD)]
    flags = [BEGIN * (n == 0) | END * (n == len(pieces) - 1) for n in range(len(pieces))]
    return [[flag | len(piece) << 5, *piece] for flag, piece in zip(flags, pieces, strict=True)]


def print_all(
    device: EmulatedGpu, messages: Sequence[list[list[int]]], rounding: int = NEAREST
) -> tuple[bytes, list[int]]:
    """The text that a wave prints on both streams, each lane its message, and the answer to each at its end."""
    most = max(map(len, messages))
    packets = [[lane_message[n] if n < len(lane_message) else [] for lane_message in messages] for n in range(most)]
    out, answers = capture_output(lambda: ask(device, PRINTF, packets, rounding))
    return out, [int(answers[len(lane_message) - 1, lane, 0]) for lane, lane_message in enumerate(messages)]


def in_order(messages: Sequence[list[list[int]]], lines: Sequence[bytes]) -> bytes:
    """The printed text if each message appears when it ends: shorter ones first, else in the order of lanes."""
    return b"".join(line for _, line in sorted(zip(map(len, messages), lines, strict=True), key=lambda pair: pair[0]))


def capture_output(run: Callable[[], Any]) -> tuple[bytes, Any]:
    """Run a function; return the text written to the C library's streams, and the function's result."""
    libc = ctypes.CDLL(None)
    libc.fflush(None)
    with tempfile.TemporaryFile() as file:
        saved = [(stream, os.dup(stream)) for stream in (1, 2)]
        for stream, _ in saved:
            os.dup2(file.fileno(), stream)
        try:
            result = run()
        finally:
            libc.fflush(None)
            for stream, copy in saved:
                os.dup2(copy, stream)
                os.close(copy)
        file.seek(0)
        return file.read(), result


def for_c(value: int | float | bytes) -> ctypes.c_char_p | ctypes.c_double | ctypes.c_int64:
    if isinstance(value, bytes):
        return ctypes.c_char_p(value)
    return ctypes.c_double(value) if isinstance(value, float) else ctypes.c_int64(value)


def printed_by_c(text: bytes, *values: int | float | bytes) -> bytes:
    """The result of the C library's snprintf."""
    arguments = list(map(for_c, values))
    room = ctypes.create_string_buffer(4096)
    size: int = ctypes.CDLL(None).snprintf(room, len(room), text, *arguments)
    return room.raw[:size]


_FLAGS = st.text(st.sampled_from("-+ #0"), max_size=3)
_SIZES = st.tuples(_FLAGS, st.sampled_from(["", "1", "9", "40"]), st.sampled_from(["", ".", ".0", ".2", ".17"]))
_LENGTHS = ("", "hh", "h", "l", "ll", "j", "z")
_INTEGERS = st.tuples(
    _SIZES,
    st.sampled_from([length + letter for length in _LENGTHS for letter in "diouxX"]),
    st.integers(-(2**63), 2**63 - 1),
)
_FLOATS = st.tuples(_SIZES, st.sampled_from(list("fFeEgGaA")), st.floats())
_STRINGS = st.tuples(_SIZES, st.just("s"), st.binary(max_size=90).map(lambda text: text.replace(b"\0", b"0")))


@on_device(ARCH)
def test_any_conversion_is_c_s(device: EmulatedGpu) -> None:
    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.one_of(_INTEGERS, _FLOATS, _STRINGS), min_size=1, max_size=LANES))
    def check(cases: list[tuple[tuple[str, str, str], str, int | float | bytes]]) -> None:
        prints = [(f"<%{''.join(sizes)}{letter}>%d\n".encode(), value, 7) for sizes, letter, value in cases]
        messages = [message(STDOUT, *arguments) for arguments in prints]
        lines = [printed_by_c(*arguments) for arguments in prints]
        assert print_all(device, messages) == (in_order(messages, lines), list(map(len, lines)))

    check()


@pytest.mark.parametrize(
    ("text", "values", "printed"),
    [
        (b"too few %d %d %d", (1, 2), b"too few 1 2 "),
        (b"star without %*d", (), b"star without "),
        (b"none of C's %y", (1,), b"none of C's "),
        (b"long double %Lf, wide %ls %lc", (0.5, b"text", 66), b"long double 0.500000, wide text B"),
    ],
)
@on_device(ARCH)
def test_what_differs_from_c(
    device: EmulatedGpu, text: bytes, values: Sequence[int | float | bytes], printed: bytes
) -> None:
    assert print_all(device, [message(STDOUT, text, *values)]) == (printed, [len(printed)])


@on_device(ARCH)
def test_stream_that_is_not_there_gets_nothing(device: EmulatedGpu) -> None:
    assert print_all(device, [message(2, b"text")]) == (b"", [ABSENT])  # -1


@on_device(ARCH)
def test_waves_rounding_is_not_hosts(device: EmulatedGpu) -> None:
    assert print_all(device, [message(STDOUT, b"%.1f", 0.25)], rounding=UP)[0] == b"0.2"


@on_device(ARCH)
def test_memory_of_host(device: EmulatedGpu) -> None:
    """Word 0: what is released; word 1: how much is wanted."""
    wanted = [1, 5000, 2 << 20, 2 << 20, 1 << 40]  # the last is more than any device has
    addresses = [int(answer) for answer in ask(device, MEMORY, [[[0, size] for size in wanted]])[0, : len(wanted), 0]]
    assert [address == 0 for address in addresses] == [False] * 4 + [True]
    assert all(address % (2 << 20) == 0 for address in addresses[2:4])  # which slabs have to be
    assert all(address % 4096 == 0 for address in addresses)  # by which a free recognises addresses outside of slabs
    live = {allocation.base: allocation for allocation in device.allocations()}
    assert [(live[address].bytes, live[address].kind) for address in addresses[:4]] == [(s, "heap") for s in wanted[:4]]
    foreign = device.malloc(100, "of the program")
    released = [*addresses[:4], addresses[0], foreign.address, 0x1234]
    ask(device, MEMORY, [[[address, 0] for address in released]])
    left = {allocation.base for allocation in device.allocations()}
    assert not left & set(addresses)
    assert foreign.address in left


@pytest.mark.parametrize(
    ("service", "payload", "reason"),
    [
        (0, [1], "service 0, which the emulator lacks"),
        (PRINTF, [END | 77 << 8], "message 77 to the host, which it never began"),
        (MEMORY, [0, 0], "an allocation of no bytes"),
    ],
)
@on_device(ARCH)
def test_what_no_one_serves_is_fault(device: EmulatedGpu, service: int, payload: list[int], reason: str) -> None:
    fault = refusal(device, service, payload)
    assert (fault.kind, fault.error) == ("host", 719)
    assert reason in fault.message
    assert "s_sendmsg" in fault.message


# Trap Handler ABI of LLVM's guide: 2 is llvm.trap, 3 llvm.debugtrap.
@pytest.mark.parametrize("number", [1, 2, 255])
@on_device("gfx942")
def test_trap_ends_launch(device: EmulatedGpu, number: int) -> None:
    with pytest.raises(DeviceFaultError) as caught:
        launch(device, assemble(f"s_trap {number}\ns_endpgm"))
    assert caught.value.fault
    assert (caught.value.fault.kind, caught.value.fault.error) == ("trap", 719)


@on_device("gfx942")
def test_trap_for_debuggers_does_nothing(device: EmulatedGpu) -> None:
    launch(device, assemble("s_trap 3\ns_endpgm"))
    with pytest.raises(DeviceFaultError) as caught:
        launch(device, assemble("s_trap 3\nv_mov_b32 v70, 1\ns_endpgm"))
    assert caught.value.fault
    assert "v70 is beyond" in caught.value.fault.message


@on_device("gfx942")
def test_wave_that_waits_for_time_comes_to_it(device: EmulatedGpu) -> None:
    for clock in ("s_memtime", "s_memrealtime"):
        loop = f"again:\n{clock} s[2:3]\ns_waitcnt lgkmcnt(0)\ns_cmp_lt_u32 s2, 0x10000\ns_cbranch_scc1 again\n"
        launch(device, assemble(f"{loop}s_endpgm"))

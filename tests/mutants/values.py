"""What registers hold before each instruction of a kernel, as far as its code and the workitem's number decide it.

An interpreter over known bits (bits.py). A workgroup is taken to be a row of whole waves, as in every launch of the
harness: v0 is then the workitem's number, and EXEC is full at the start; and a launch to have fewer than 65,536
workgroups in each direction. All else that a kernel is started with, and
all that memory holds, is unknown. Scalars that are kept in lanes of a vector register are followed as well. Where ways
meet, what holds on all of them is kept.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulator.inspection.hazard_effects import effects
from emulator.lowering.decode import Encoding, Instruction
from emulator.lowering.flow import successors
from emulator.lowering.registers import VECTOR
from tests.mutants import bits
from tests.mutants.arguments import Arguments, forget
from tests.mutants.bits import LANES, UNKNOWN, Bits, Truth, constant, join

Place = int | tuple[int, int]  # a register of registers.py, or a lane of a vector register that keeps a scalar
State = dict[Place, Bits]
CALLS = ("s_swappc_b64", "s_setpc_b64", "s_call_b64")
VCC, EXEC = 106, 126
_LITERAL = 255
_PATIENCE = 2  # visits of a place, after which counts are given up


_SIMPLE: Mapping[str, Callable[..., Bits]] = {
    "mov_b32": lambda a: a,
    "not_b32": bits.bits_not,
    "brev_b32": bits.reversed_bits,
    "bfrev_b32": bits.reversed_bits,
    "and_b32": bits.bits_and,
    "or_b32": bits.bits_or,
    "xor_b32": bits.bits_xor,
    "andn2_b32": lambda a, b: bits.bits_and(a, bits.bits_not(b)),
    "add_u32": bits.add,
    "add_i32": bits.add,
    "sub_u32": bits.subtract,
    "sub_i32": bits.subtract,
    "subrev_u32": lambda a, b: bits.subtract(b, a),
    "mul_i32": bits.multiply,
    "mul_lo_u32": bits.multiply,
    "mul_u32_u24": bits.multiply_24,
    "mad_u32_u24": lambda a, b, c: bits.add(bits.multiply_24(a, b), c),
    "lshl_b32": bits.shift_left,
    "lshr_b32": bits.shift_right,
    "ashr_i32": bits.shift_right_signed,
    "lshlrev_b32": lambda a, b: bits.shift_left(b, a),
    "lshrrev_b32": lambda a, b: bits.shift_right(b, a),
    "ashrrev_i32": lambda a, b: bits.shift_right_signed(b, a),
    "bfe_u32": bits.extract,
    "and_or_b32": lambda a, b, c: bits.bits_or(bits.bits_and(a, b), c),
    "or3_b32": lambda a, b, c: bits.bits_or(bits.bits_or(a, b), c),
    "lshl_or_b32": lambda a, b, c: bits.bits_or(bits.shift_left(a, b), c),
    "lshl_add_u32": lambda a, b, c: bits.add(bits.shift_left(a, b), c),
    "add_lshl_u32": lambda a, b, c: bits.shift_left(bits.add(a, b), c),
    "add3_u32": lambda a, b, c: bits.add(bits.add(a, b), c),
    "xad_u32": lambda a, b, c: bits.add(bits.bits_xor(a, b), c),
}
_BOTH_HALVES: Mapping[str, Callable[..., Bits]] = {
    "mov_b64": lambda a: a,
    "not_b64": bits.bits_not,
    "and_b64": bits.bits_and,
    "or_b64": bits.bits_or,
    "xor_b64": bits.bits_xor,
    "andn2_b64": lambda a, b: bits.bits_and(a, bits.bits_not(b)),
    "orn2_b64": lambda a, b: bits.bits_or(a, bits.bits_not(b)),
}


def field(one: Instruction, name: str) -> int | None:
    """A field of the encoding as it stands there; None if there is none of that name."""
    for own, place in type(one.record)._fields:
        if own == name:
            return int(one.encoding.raw >> place.lo & (1 << (place.hi - place.lo + 1)) - 1)
    return None


def sources(one: Instruction) -> tuple[int, ...]:
    """The 9-bit encodings of the operands that a scalar or vector operation reads, in order."""
    return _sources(one.encoding)


@functools.lru_cache(maxsize=1 << 14)
def _sources(encoding: Encoding) -> tuple[int, ...]:
    one, named = Instruction(0, encoding), encoding.record.operands
    names = ("ssrc0", "ssrc1") if one.format.startswith("SOP") else ("src0", "src1", "src2")
    found = tuple(value for name in names if name in named and (value := field(one, name)) is not None)
    second = field(one, "vsrc1") if "vsrc1" in named else None
    return found if second is None else (*found, second + VECTOR)


class Values:
    """Of one kernel."""

    def __init__(
        self,
        instructions: Sequence[Instruction],
        waves: int,
        arch: str,
        ids: Sequence[int] = (),
        arguments: Arguments = Arguments(),  # noqa: B008 - frozen
    ) -> None:
        """``waves``: of a workgroup; ``ids``: the scalars that hold its number at the start. Where the code calls,
        nothing is known.
        """
        self._code, self.waves, self._arch, self._ids = instructions, waves, arch, ids
        self._arguments = arguments
        self._known = not any(one.name in CALLS for one in instructions)
        self._following = successors(instructions)
        entered = {at for ways in self._following for at in ways if len(ways) > 1} | {0}
        entered |= {after for at, ways in enumerate(self._following) for after in ways if after != at + 1}
        self._entries = sorted(entered)
        self._spills = {one.record.vdst.offset for one in instructions if one.name == "v_writelane_b32"}
        self._lane = constant(np.arange(waves * LANES).reshape(waves, LANES))
        self._before = self._fixpoint() if self._known and instructions else {}

    def before(self, at: int) -> State:
        """What holds before an instruction; registers that are missing are unknown."""
        start = max((entry for entry in self._entries if entry <= at), default=0)
        state = dict(self._before.get(start, {}))
        for index in range(start, at):
            self._step(state, self._code[index])
        return state

    def writes_all_lanes(self, at: int) -> bool:
        """Whether EXEC is known to be full before an instruction."""
        return self._is_full(self.before(at))

    def after(self, at: int, one: Instruction) -> State:
        """What would hold after an instruction if ``one`` stood there."""
        state = self.before(at)
        self._step(state, one)
        return state

    def read(self, state: State, code: int, one: Instruction) -> Bits:
        """A source by its 9-bit encoding."""
        if code <= 127 or code >= VECTOR:
            return state.get(code, UNKNOWN)
        if 128 <= code <= 208:
            return constant(code - 128 if code <= 192 else 192 - code)
        return constant(field(one, "literal")) if code == _LITERAL else UNKNOWN

    def condition(self, state: State, one: Instruction) -> Truth | None:
        """What a comparison of integers gives, by lane; None for others."""
        kind, _, rest = one.name.partition("_cmp")
        relation, _, form = rest.removeprefix("k").removeprefix("x").removeprefix("_").partition("_")
        relation = {"ne": "lg"}.get(relation, relation)
        if kind not in ("v", "s") or form not in ("i32", "u32") or relation not in ("lt", "le", "gt", "ge", "eq", "lg"):
            return None
        if one.format not in ("SOPC", "VOPC", "VOPC_LIT", "SOPC_LIT", "VOP3", "VOP3_SDST"):
            return None
        a, b = (self.read(state, code, one) for code in sources(one))
        return bits.compare(relation, a, b, signed=form == "i32")

    # ---- the way to it

    def _start(self) -> State:
        full = constant(-1)
        number = Bits(np.full((1, 1), 0xFFFF0000, np.uint32), np.zeros((1, 1), np.uint32))
        lanes: State = {EXEC: full, EXEC + 1: full, VECTOR: self._lane}
        return {**lanes, **dict.fromkeys(self._ids, number), **self._arguments.at_start()}

    def _fixpoint(self) -> dict[int, State]:
        known: dict[int, State] = {0: self._start()}
        visits: dict[int, int] = {}
        queue, entries = [0], set(self._entries)
        while queue:
            at = queue.pop()
            state = dict(known[at])
            self._step(state, self._code[at])
            while len(self._following[at]) == 1 and self._following[at][0] not in entries:
                (at,) = self._following[at]
                self._step(state, self._code[at])
            for after in self._following[at]:
                if after not in known:
                    known[after] = dict(state)
                elif not self._merged(known[after], state, visits.get(after, 0) >= _PATIENCE):
                    continue
                visits[after] = visits.get(after, 0) + 1
                queue.append(after)
        return known

    def _merged(self, known: State, other: State, impatient: bool) -> bool:
        """Keep of ``known`` what holds in both; whether that is less."""
        less = False
        for place in list(known):
            old = known[place]
            new = (bits.widened if impatient else join)(old, other.get(place, UNKNOWN))
            if not old.same(new):
                less = True
                known[place] = new
                if not new.known.any():
                    del known[place]
        return less

    def _step(self, state: State, one: Instruction) -> None:
        if one.name == "v_writelane_b32" and (lane := lane_of(one)) is not None:
            state.pop(one.record.vdst.offset, None)
            _put(state, (one.record.vdst.offset, lane), self.read(state, sources(one)[0], one))
            return
        written = {**dict(self._results(state, one)), **dict(self._arguments.loaded(state, one))}
        forget(state, _written(one.encoding, self._arch))
        for register in _written(one.encoding, self._arch):
            value = written.pop(register, UNKNOWN)
            if register >= VECTOR:
                self._write_lanes(state, register, value)
            else:
                _put(state, register, value)
        for place, value in written.items():
            _put(state, place, value)

    def _write_lanes(self, state: State, register: int, value: Bits) -> None:
        """Only lanes that EXEC names are written."""
        if register in self._spills:
            for place in [place for place in state if isinstance(place, tuple) and place[0] == register]:
                del state[place]
        old = state.get(register, UNKNOWN)
        if old is UNKNOWN and value is UNKNOWN:
            return
        if not self._is_full(state):
            on, off = self._lanes(state, EXEC)
            value = value.where(on, old.where(off, join(value, old)))
        _put(state, register, value)

    def _is_full(self, state: State) -> bool:
        return all(bool((state.get(EXEC + half, UNKNOWN).ones == bits.ALL).all()) for half in (0, 1))

    def _lanes(self, state: State, pair: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """The lanes whose bit in a pair of scalars is known to be 1, and to be 0."""
        low, high = state.get(pair, UNKNOWN), state.get(pair + 1, UNKNOWN)
        lanes = np.arange(LANES, dtype=np.uint32)

        def spread(first: bits.Words, second: bits.Words) -> NDArray[Any]:
            word = np.where(lanes < 32, first, second)
            on: NDArray[Any] = (word >> (lanes % np.uint32(32)) & np.uint32(1)).astype(bool)
            return on

        return spread(low.ones, high.ones), spread(low.zeros, high.zeros)

    def _results(self, state: State, one: Instruction) -> Iterator[tuple[Place, Bits]]:
        """What an instruction writes, as far as it is known."""
        if one.record is None or "SDWA" in one.format or "DPP" in one.format:
            return
        kind, _, name = one.name.partition("_")
        if kind == "s":
            yield from self._scalar(state, one, name)
        elif kind == "v":
            yield from self._vector(state, one, name)

    def _scalar(self, state: State, one: Instruction, name: str) -> Iterator[tuple[Place, Bits]]:
        target = field(one, "sdst")
        if target is None:
            return
        if one.format == "SOPK":
            if name == "movk_i32":
                yield target, constant(np.int16(np.uint16(one.record.simm16)))
            return
        codes = sources(one)
        if name == "bfe_u32":  # offset and width in one number
            value, both = (self.read(state, code, one) for code in codes)
            width = bits.bits_and(bits.shift_right(both, constant(16)), constant(127))
            yield target, bits.extract(value, bits.bits_and(both, constant(31)), width)
        elif name in _SIMPLE:
            yield target, _SIMPLE[name](*(self.read(state, code, one) for code in codes))
        elif name in _BOTH_HALVES:
            for half in (0, 1):
                yield target + half, _BOTH_HALVES[name](*(self._half(state, code, half, one) for code in codes))
        elif name.endswith("_saveexec_b64"):
            yield from self._saved_exec(state, one, name, target, codes[0])
        elif name == "cselect_b32":
            yield target, join(*(self.read(state, code, one) for code in codes))
        elif name == "abs_i32":
            value = self.read(state, codes[0], one)
            yield target, value.where(value.zeros >> np.uint32(31) == 1, UNKNOWN)

    def _half(self, state: State, code: int, half: int, one: Instruction) -> Bits:
        if code <= 127:
            return state.get(code + half, UNKNOWN)
        value = self.read(state, code, one)  # a constant is 32 bits, whose sign goes on
        return value if half == 0 else bits.shift_right_signed(value, constant(31))

    def _saved_exec(
        self, state: State, one: Instruction, name: str, target: int, code: int
    ) -> Iterator[tuple[Place, Bits]]:
        operation = _BOTH_HALVES.get(name.replace("_saveexec", ""))
        for half in (0, 1):
            old = state.get(EXEC + half, UNKNOWN)
            yield target + half, old
            new = operation(self._half(state, code, half, one), old) if operation else UNKNOWN
            yield EXEC + half, new

    def _vector(self, state: State, one: Instruction, name: str) -> Iterator[tuple[Place, Bits]]:
        if name.startswith("cmp"):
            yield from self._compared(state, one, name)
            return
        target = one.record.vdst.offset if field(one, "vdst") is not None else None
        if target is None or _modified(one):
            return
        codes = sources(one)
        values = [self.read(state, code, one) for code in codes]
        if name in _SIMPLE:
            yield target, _SIMPLE[name](*values)
        elif name == "mov_b64":
            for half in (0, 1):
                second = state.get(codes[0] + half, UNKNOWN) if codes[0] <= 127 or codes[0] >= VECTOR else UNKNOWN
                yield target + half, second
        elif name == "cndmask_b32":
            yes, no = self._lanes(state, codes[2] if len(codes) > 2 else VCC)
            yield target, values[1].where(yes, values[0].where(no, join(values[0], values[1])))
        elif name in ("mbcnt_lo_u32_b32", "mbcnt_hi_u32_b32"):
            yield target, bits.lanes_below(name, *values)
        else:
            yield from self._between_files(state, one, name, codes)

    def _between_files(
        self, state: State, one: Instruction, name: str, codes: Sequence[int]
    ) -> Iterator[tuple[Place, Bits]]:
        """Scalars from vectors and back. The first lane counts if EXEC surely has it."""
        if name == "readfirstlane_b32":
            value = self.read(state, codes[0], one)
            if bool((state.get(EXEC, UNKNOWN).ones & np.uint32(1)).all()):
                yield _scalar_target(one), Bits(value.zeros[:, :1], value.ones[:, :1])
        elif name == "readlane_b32" and (lane := lane_of(one)) is not None:
            whole = state.get(codes[0], UNKNOWN)
            narrow = min(lane, whole.zeros.shape[1] - 1)
            spilled = Bits(whole.zeros[:, narrow : narrow + 1], whole.ones[:, narrow : narrow + 1])
            yield _scalar_target(one), state.get((codes[0], lane), spilled)

    def _compared(self, state: State, one: Instruction, name: str) -> Iterator[tuple[Place, Bits]]:
        truth = self.condition(state, one) if not _modified(one) else None
        into_exec = name.startswith("cmpx")
        if truth is None:
            if into_exec:  # of the lanes that were on
                yield from ((EXEC + half, bits.only_zeros(state.get(EXEC + half, UNKNOWN))) for half in (0, 1))
            return
        on, off = self._lanes(state, EXEC)
        true, false = bits.packed(truth.true & on), bits.packed(truth.false | off)
        for half in (0, 1):
            value = Bits(false[half], true[half])
            if into_exec:
                yield EXEC + half, value
            if not into_exec or one.format.startswith("VOP3"):
                yield _mask_target(one) + half, value


def lane_of(one: Instruction) -> int | None:
    """The lane of v_readlane and v_writelane, if it is a constant."""
    code = field(one, "src1")
    return code - 128 if code is not None and 128 <= code < 128 + LANES else None


def _put(state: State, place: Place, value: Bits) -> None:
    if value.known.any():
        state[place] = value
    else:
        state.pop(place, None)


def _modified(one: Instruction) -> bool:
    return any(field(one, name) for name in ("neg", "abs", "omod", "clmp", "opsel"))


def _scalar_target(one: Instruction) -> int:
    return int(one.record.vdst.offset) - VECTOR


def _mask_target(one: Instruction) -> int:
    if not one.format.startswith("VOP3"):
        return VCC
    target = field(one, "vdst")
    assert target is not None
    return target


@functools.lru_cache(maxsize=1 << 14)
def _written(encoding: Encoding, arch: str) -> tuple[int, ...]:
    """Registers, the implied ones too."""
    mask, registers = effects(Instruction(0, encoding), arch).writes, []
    if "saveexec" in encoding.name or "wrexec" in encoding.name:
        registers = [EXEC, EXEC + 1]
    while mask:
        low = mask & -mask
        registers.append(low.bit_length() - 1)
        mask ^= low
    return tuple(registers)

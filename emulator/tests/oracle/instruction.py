"""One whole instruction on the state of one wave: operands, pseudocode per lane, results, untouched lanes.

Instructions come as tinygrad's Inst objects (any CDNA encoding). CDNA3 ISA sections named where a rule is applied.
"""

from __future__ import annotations

from typing import Any

from oracle import floats, memory_instructions, mfma, operands, typed_buffers
from oracle.encoding import bare_name, common_scope, encoding, listing_text, literal_of, view
from oracle.operands import EXEC, SCC, VCC, Operand, State, operand
from oracle.pcode import Cell, Remote, Scope, run, text_of

NO_FLUSH = (  # values are moved or examined as bits: MODE.FP_DENORM does not apply
    "V_MOV", "V_CNDMASK", "V_CMP_CLASS", "V_CMPX_CLASS", "V_SWAP", "V_READ", "V_WRITE", "V_PERM", "V_ACCVGPR",
    "V_PACK_B32_F16", "V_PK_MOV", "V_DIV_SCALE", "V_DIV_FIXUP", "V_FREXP", "V_CVT_F32_FP8", "V_CVT_F32_BF8",
    "V_CVT_PK_F32_FP8", "V_CVT_PK_F32_BF8", "V_CVT_SCALEF32",
)  # fmt: skip
# The transcendental unit has no f32 denormals in any MODE (LLVM SIISelLowering: "v_rcp_f32 and v_rsq_f32 do not
# support denormals"; the same for exp, log and sqrt, which it scales around when denormals are enabled).
ALWAYS_FLUSH = frozenset({"V_EXP_F32", "V_LOG_F32", "V_RCP_F32", "V_RCP_IFLAG_F32", "V_RSQ_F32", "V_SQRT_F32",
                           "V_EXP_LEGACY_F32", "V_LOG_LEGACY_F32"})  # fmt: skip
LOGIC_WITH_MODIFIERS = frozenset({"V_CNDMASK_B32"})  # neg and abs act on bit 31 although the operand is "bits"


def execute(inst: Any, state: State) -> None:
    """Apply `inst` to `state`."""
    inst = view(inst)
    kind = encoding(inst)
    if text_of(inst.op) == "":  # waits, hints, cache control
        state.stopped = {"S_ENDPGM": 1, "S_ENDPGM_SAVED": 1, "S_BARRIER": 2}.get(inst.op.name, 0)
        return
    if kind.startswith("SOP"):
        _scalar(inst, state)
    elif kind == "SMEM":
        memory_instructions.scalar_memory(inst, state)
    elif kind == "DS":
        memory_instructions.lds(inst, state)
    elif kind in ("FLAT", "GLOBAL", "SCRATCH"):
        memory_instructions.flat(inst, state)
    elif "_FORMAT_" in inst.op.name:
        typed_buffers.execute(inst, state)
    elif kind == "MUBUF":
        memory_instructions.buffer(inst, state)
    elif "MFMA" in inst.op.name or "SMFMAC" in inst.op.name:
        mfma.execute(inst, state)
    else:
        _vector(inst, state)


# --- scalar instructions (ISA section 5) ---


def _scalar(inst: Any, state: State) -> None:
    scope, name = common_scope(state), bare_name(inst)
    if name == "S_GETPC_B64":
        scope.cells["PC"].bits = state.pc
    for n, field in enumerate(("ssrc0", "ssrc1")):
        if hasattr(inst, field):
            kind = operand(inst, field)
            bits = operands.read_scalar(state, getattr(inst, field).offset, kind, literal_of(inst))
            scope.set(f"S{n}", "b", max(kind.bits, 32), bits)
            scope.set(f"SRC{n}", "u", 32, getattr(inst, field).offset)
    if hasattr(inst, "simm16"):
        scope.set("SIMM16", "u", 16, inst.simm16)
        scope.set("S0", "b", 16, inst.simm16)
        scope.set("SIMM32", "u", 32, literal_of(inst) or 0)
    width = 0
    if hasattr(inst, "sdst"):
        width = max(operand(inst, "sdst").bits, 32)
        old = operands.read_scalar(state, inst.sdst.offset, Operand("B32", 1, width), None)
        scope.cells["D0"] = Cell(width, old, register=True)
        if name.startswith("S_CMPK"):
            scope.set("S1", "b", 16, inst.simm16)
            scope.set("S0", "b", 32, old)
        elif name == "S_SETREG_B32":
            scope.set("S0", "b", 32, old)
    scope.arrays["SGPR"] = (1, lambda n: _scalar_register(state, n))
    for name_, value in (("DST", inst.sdst.offset if hasattr(inst, "sdst") else 0), ("WAVE_MODE.GPR_IDX_EN", 0)):
        scope.set(name_, "u", 32, value)
    for user in ("SYS", "USER"):
        scope.set(f"WAVE_STATUS.COND_DBG_{user}", "u", 1, 0)
    scope.arrays["HW_REGISTERS"] = (1, lambda n: _hardware_register(state, n))
    scope.arrays["HwRegWriteMask"] = (0, lambda *_: Cell(32, 0xFFFFFFFF, kind="i"))
    run(listing_text(inst), scope)
    state.scalar[SCC] = scope.cells["SCC"].bits & 1
    state.set_pair(EXEC, scope.cells["EXEC"].bits)
    state.scalar[operands.M0] = scope.cells["M0"].bits
    if width and not name.startswith(("S_CMPK", "S_SETREG", "S_MOVRELD")):
        operands.write_scalar(state, inst.sdst.offset, scope.cells["D0"].bits, width)
    taken = scope.cells["PC"].bits != state.pc
    state.pc = scope.cells["PC"].bits if taken else state.pc + inst.bytes


def _scalar_register(state: State, number: int) -> Cell:
    def load(low: int, width: int) -> int:
        return state.pair(number) >> low & ((1 << width) - 1)

    def store(low: int, width: int, bits: int) -> None:
        operands.write_scalar(state, number, bits, width)

    return Remote(load, store, 64)


def _hardware_register(state: State, number: int) -> Cell:
    if number != 1:
        raise NotImplementedError(f"hardware register {number}")

    def store(low: int, width: int, bits: int) -> None:
        state.mode = bits

    return Remote(lambda low, width: state.mode >> low & ((1 << width) - 1), store, 32)


# --- vector ALU (ISA section 6) ---


def _vector_fields(inst: Any) -> list[str]:
    names = ["src0", "src1" if hasattr(inst, "src1") else "vsrc1", "src2"]
    return [name for name in names if hasattr(inst, name)]


def _whole_wave(inst: Any, state: State, text: str) -> None:
    """Opcodes whose listing moves data between lanes: V_READLANE, V_WRITELANE, V_READFIRSTLANE, V_PERMLANE*_SWAP."""
    scope = common_scope(state)
    acc = 0
    source = inst.src0.offset
    scope.set("SRC0", "u", 32, source)
    to_scalar = "READ" in inst.op.name
    scope.set("VDST", "u", 32, inst.vdst.offset)

    def row(lane: int, code: int) -> Cell:
        if code < 256:
            return Cell(32, operands.read_scalar(state, code, Operand("B32", 1, 32), literal_of(inst)))

        def load(low: int, width: int) -> int:
            return int(state.vector[code - 256 + acc, lane]) >> low & ((1 << width) - 1)

        def store(low: int, width: int, bits: int) -> None:
            state.vector[code - 256 + acc, lane] = bits

        return Remote(load, store, 32)

    scope.arrays["VGPR"] = (2, row)
    fields = _vector_fields(inst)
    for n, field in enumerate(fields):
        code = getattr(inst, field).offset
        if code < 256:
            bits = operands.read_scalar(state, code, Operand("B32", 1, 32), literal_of(inst))
            scope.set(f"S{n}", "b", 32, bits)
    scope.cells["D0"] = Cell(32, 0, register=True)
    run(text, scope)
    if to_scalar:
        code = inst.vdst.offset
        state.scalar[code - 256 if code >= 256 else code] = scope.cells["D0"].bits


class _Sources:
    """Source operands of a vector instruction with their modifiers."""

    def __init__(self, inst: Any, state: State) -> None:
        self.inst, self.state, self.name = inst, state, bare_name(inst)
        self.fields = _vector_fields(inst)
        self.kinds = [operand(inst, field) for field in self.fields]
        variant = inst.variant
        self.sdwa, self.dpp = "SDWA" in variant, "DPP" in variant
        self.packed = encoding(inst) == "VOP3P"
        self.neg, self.abs = getattr(inst, "neg", 0), getattr(inst, "abs", 0)
        if self.sdwa or self.dpp:
            self.neg = inst.src0_neg | inst.src1_neg << 1
            self.abs = inst.src0_abs | inst.src1_abs << 1
        if self.name.startswith("V_BITOP3"):
            self.neg = self.abs = 0
        self.opsel = getattr(inst, "opsel", 0)
        self.opsel_hi = getattr(inst, "opsel_hi", 0) | getattr(inst, "opsel_hi2", 0) << 2
        self.acc = getattr(inst, "acc", 0) if self.packed else 0
        if self.name == "V_ACCVGPR_READ" or self.name == "V_ACCVGPR_MOV_B32":  # these read an AccVGPR
            self.acc = 1
        # How an inline constant is read. For the exponent of V_LDEXP_F16 the operand table has f16, and so does LLVM:
        # its assembler encodes `v_ldexp_f16 v5, v1, 0x3800` with the inline 0.5, `v_lshlrev_b16` with a literal.
        self.constants = list(self.kinds)
        if self.name.startswith("V_LDEXP"):  # otherwise the exponent is an integer against the table
            self.kinds[1] = Operand("I16" if self.name.endswith("F16") else "I32", 1, self.kinds[1].bits)

    def raw(self, n: int, lane: int) -> int | None:
        """Bits before modifiers; None if DPP disables the lane."""
        inst, kind = self.inst, self.constants[n]
        field = self.fields[n]
        code = getattr(inst, field).offset
        if n == 0 and (self.sdwa or self.dpp):
            code = inst.vsrc0.offset
            if self.sdwa and inst.s0:
                code -= 256
        if n == 1 and self.sdwa and inst.s1:
            code -= 256
        if n == 0 and self.dpp:
            lane_read = operands.dpp_source(inst.dpp, lane)
            if lane_read is None or not self.state.exec >> lane_read & 1:
                return 0 if inst.bc else None
            lane = lane_read
        return operands.read_source(self.state, code, lane, kind, literal_of(inst), bool(self.acc >> n & 1))

    def read(self, n: int, lane: int) -> int | None:
        bits = self.raw(n, lane)
        if bits is None:
            return None
        kind = self.kinds[n]
        negative, absolute = bool(self.neg >> n & 1), bool(self.abs >> n & 1)
        if self.sdwa:
            return self._sdwa(n, bits, kind)
        if self.packed:
            return self._packed_source(n, bits, kind)
        if kind.bits == 16 and self.opsel >> n & 1 and encoding(self.inst) == "VOP3" and "SCALEF32" not in self.name:
            bits >>= 16  # listings of scaled conversions do that themselves
        if kind.format is not None or self.name in LOGIC_WITH_MODIFIERS:
            bits = operands.modify(bits, kind.element, negative, absolute)
            bits = self._flush(bits, kind)
        return bits

    def _sdwa(self, n: int, bits: int, kind: Operand) -> int:
        inst = self.inst
        if "FP8" in self.name or "BF8" in self.name:
            return bits  # the listing selects the byte itself
        selection, sign = (inst.src0_sel, inst.src0_sext) if n == 0 else (inst.src1_sel, inst.src1_sext)
        bits = operands.select(bits, selection, bool(sign))
        if kind.format is not None:
            bits = operands.modify(bits, kind.element, bool(self.neg >> n & 1), bool(self.abs >> n & 1))
            bits = self._flush(bits, kind)
        return bits

    def _packed_source(self, n: int, bits: int, kind: Operand) -> int:
        """op_sel picks the part of the low result, op_sel_hi that of the high one; neg_hi negates the latter (6.3)."""
        if "_MIX" in self.name or self.name == "V_PK_MOV_B32" or "ACCVGPR" in self.name:
            if "_MIX" in self.name:  # neg_hi is abs here; the operand is f16 or f32 by op_sel_hi
                half = bool(self.opsel_hi >> n & 1)
                top = 15 if half and not self.opsel >> n & 1 else 31
                if self.inst.neg_hi >> n & 1:
                    bits &= ~(1 << top)
                if self.neg >> n & 1:
                    bits ^= 1 << top
                bits = self._flush(bits, Operand("F16", 2, 32) if half else Operand("F32", 1, 32))
            return bits
        width = 32 if kind.bits == 64 else 16
        mask = (1 << width) - 1
        code = getattr(self.inst, self.fields[n]).offset
        if width == 32 and kind.packed == 2 and 128 <= code < 256:
            bits |= bits << 32
        low = bits >> width * (self.opsel >> n & 1) & mask
        high = bits >> width * (self.opsel_hi >> n & 1) & mask
        if kind.packed != 2:  # dot products: 32-bit accumulators and byte operands are taken whole
            if kind.format is None:
                return bits
            return operands.modify(bits, kind.element, bool(self.neg >> n & 1), False)
        if kind.format is not None:
            low = self._flush(operands.modify(low, kind.element, bool(self.neg >> n & 1), False), kind)
            high = self._flush(operands.modify(high, kind.element, bool(self.inst.neg_hi >> n & 1), False), kind)
        return high << width | low

    def _flush(self, bits: int, kind: Operand) -> int:
        fmt = kind.format
        if fmt is None or self.name.startswith(NO_FLUSH):
            return bits
        if self.name in ALWAYS_FLUSH or self.state.flushes(32 if fmt is floats.BF16 else fmt.width, False):
            return _flush_parts(bits, fmt, kind.packed if kind.bits > fmt.width else 1)
        return bits


def _flush_parts(bits: int, fmt: floats.Format, parts: int) -> int:
    """Each of the numbers in an operand, the lowest first."""
    mask = (1 << fmt.width) - 1
    return sum(operands.flush(bits >> n * fmt.width & mask, fmt) << n * fmt.width for n in range(parts))


def _result(inst: Any, state: State, bits: int, kind: Operand, old: int) -> int:
    """Apply output modifiers in the order of section 6.2.2: omod, clamp, denormals, destination."""
    name, fmt = bare_name(inst), kind.format
    clmp, omod = getattr(inst, "clmp", 0), getattr(inst, "omod", 0)
    if name.startswith("V_BITOP3"):
        clmp = omod = 0
    parts = kind.packed if fmt is not None else 1
    if fmt is not None:
        done = 0
        for n in range(parts):
            part = bits >> n * fmt.width & ((1 << fmt.width) - 1)
            flushes = state.flushes(32 if fmt is floats.BF16 else fmt.width, True)
            if omod and flushes and not state.ieee:
                part = operands.scale_output(part, omod, fmt, state.modes().rounding(fmt.width))
            if not name.startswith(NO_FLUSH) and (name in ALWAYS_FLUSH or flushes):
                part = operands.flush(part, fmt)
            if clmp:
                part = operands.clamp(part, fmt, state.dx10_clamp)
            done |= part << n * fmt.width
        whole = (1 << parts * fmt.width) - 1
        bits = done | (bits & ~whole if "_MIX" in name else 0)
        if "_MIX" in name:
            raise AssertionError("mixed precision is packed by its caller")
    variant = inst.variant
    if "SDWA" in variant and hasattr(inst, "dst_sel"):
        return operands.insert(old, bits, inst.dst_sel, inst.dst_unused)
    if kind.bits == 16 and encoding(inst) == "VOP3" and inst.opsel >> 3 & 1:
        return old & 0xFFFF | bits << 16 & 0xFFFF0000
    return bits


def _mix_result(inst: Any, state: State, bits: int) -> int:
    """V_FMA_MIX*: f32 result, or f16 in one half with the other half kept."""
    name = bare_name(inst)
    fmt = floats.F32 if name.endswith("F32") else floats.F16
    shift = 16 if "MIXHI" in name else 0
    mask = (1 << fmt.width) - 1
    part = bits >> shift & mask
    if state.flushes(fmt.width, True):
        part = operands.flush(part, fmt)
    if inst.clmp:
        part = operands.clamp(part, fmt, state.dx10_clamp)
    return bits & ~(mask << shift) | part << shift


def _vector(inst: Any, state: State) -> None:
    text, name = listing_text(inst), bare_name(inst)
    if name.startswith(("V_READLANE", "V_READFIRSTLANE", "V_WRITELANE", "V_PERMLANE")):
        _whole_wave(inst, state, text)
        return
    before = state.copy()
    sources = _Sources(inst, before)
    comparison = name.startswith("V_CMP")
    execute_mask = before.exec
    width = 32
    kind = Operand("B32", 1, 32)
    if hasattr(inst, "vdst") and not comparison:
        kind = operand(inst, "vdst")
        width = max(32, kind.bits)
    mask_out = _mask_destination(inst, name)
    mask = Cell(64, 0, register=True)
    vcc_in = _mask_source(inst, before, name)
    scope = common_scope(before)
    scope.cells["D0"] = mask
    new_exec = Cell(64, execute_mask, register=True)
    if name.startswith("V_CMPX"):
        scope.cells["EXEC"] = new_exec
    _encoding_cells(inst, scope)
    acc = 256 if "ACCVGPR_WRITE" in name or "ACCVGPR_MOV" in name else 0
    for lane in range(64):
        if not execute_mask >> lane & 1 or not _dpp_writes(inst, lane):
            continue
        operand_bits = [sources.read(n, lane) for n in range(len(sources.fields))]
        if None in operand_bits:
            continue
        for n, bits in enumerate(operand_bits):
            assert bits is not None
            scope.set(f"S{n}", "b", max(32, sources.kinds[n].bits), bits)
        if "_MIX" in name:
            scope.cells["S"] = Cell()
            scope.cells["S"].items = [scope.cells[f"S{n}"] for n in range(3)]
        scope.set("laneId", "u", 32, lane)
        if comparison:
            run(text, scope)
            continue
        row = inst.vdst.offset - 256
        old = operands.read_vector(before, row + acc, lane, width)
        destination = scope.cells["D0"] = scope.cells["D"] = Cell(width, _old_operand(inst, before, old), register=True)
        held = {0: destination, 1: scope.cells.get("S0")}
        scope.arrays["VGPR"] = (2, lambda _lane, row, held=held: held[row])
        carry = scope.cells["D1"] = Cell(64, 0, register=True)
        scope.cells["VCC"] = _Split(vcc_in, mask)
        if name.startswith("V_DIV_SCALE"):
            scope.cells["VCC"] = carry
        scope.cells.pop("tmp", None)
        run(text, scope)
        if mask_out is not None and (name.startswith(("V_DIV_SCALE", "V_MAD_U64", "V_MAD_I64"))):
            mask.write(lane, 1, carry.bits & 1)
        if "_MIX" in name:
            bits = _mix_result(inst, before, destination.bits)
        elif "_FP8_" in name or "_BF8_" in name or "SCALEF32" in name or name.startswith("V_CVT_SR_"):
            bits = destination.bits  # the listing places the bytes itself
        else:
            bits = _result(inst, before, destination.bits, kind, old)
        operands.write_vector(state, row + acc, lane, bits, width)
        if name.startswith("V_SWAP"):
            operands.write_vector(state, inst.src0.offset - 256, lane, scope.cells["S0"].bits, 32)
    if mask_out is not None:
        state.set_pair(mask_out, mask.bits)
    if name.startswith("V_CMPX"):
        state.set_pair(EXEC, new_exec.bits)


class _Split(Cell):
    """VCC of carry chains: read from one mask, write to another, so that lanes do not see each other."""

    def __init__(self, source: int, target: Cell) -> None:
        super().__init__(64, source, register=True)
        self.target = target

    def write(self, low: int, width: int, bits: int) -> None:
        self.target.write(low, width, bits)


def _old_operand(inst: Any, state: State, old: int) -> int:
    """D0 as an input (V_FMAC, V_DOT2C): flushed like any other operand."""
    name, kind = bare_name(inst), operand(inst, "vdst")
    if "MAC" in name and kind.format is not None and state.flushes(kind.format.width, False):
        return _flush_parts(old, kind.format, kind.packed) if kind.packed > 1 else operands.flush(old, kind.format)
    return old


def _mask_destination(inst: Any, name: str) -> int | None:
    """Write lane masks: VOPC and VOP2 carries to VCC, VOP3 to its SGPR pair. Inactive lanes get 0."""
    if name.startswith("V_CMP"):
        if encoding(inst) == "VOP3":
            return int(inst.vdst.offset)
        if hasattr(inst, "sdst") and inst.sd:
            return int(inst.sdst.offset)
        return VCC
    if hasattr(inst, "sdst") and encoding(inst) == "VOP3SD":
        return int(inst.sdst.offset)
    return VCC if encoding(inst) == "VOP2" and "_CO_" in name else None


def _mask_source(inst: Any, state: State, name: str) -> int:
    if encoding(inst) in ("VOP3", "VOP3SD") and name.startswith(("V_CNDMASK", "V_ADDC", "V_SUBB")):
        return operands.read_scalar(state, inst.src2.offset, Operand("B64", 1, 64), None)
    return state.pair(VCC)


def _dpp_writes(inst: Any, lane: int) -> bool:
    if "DPP" not in inst.variant:
        return True
    return bool(inst.row_mask >> lane // 16 & 1 and inst.bank_mask >> lane % 16 // 4 & 1)


def _encoding_cells(inst: Any, scope: Scope) -> None:
    """Fields of the encoding that listings read."""
    opsel_hi = getattr(inst, "opsel_hi", 0) | getattr(inst, "opsel_hi2", 0) << 2
    scope.set("OPSEL", "u", 4, getattr(inst, "opsel", 0))
    scope.set("OPSEL_HI", "u", 3, opsel_hi)
    scope.set("VDST", "u", 32, 0)
    scope.set("SRC0", "u", 32, 1)
    scope.set("SIMM32", "u", 32, literal_of(inst) or 0)
    scope.set("SIMM16", "u", 16, (literal_of(inst) or 0) & 0xFFFF)
    scope.set("SDWA_SRC0_SEL", "u", 3, getattr(inst, "src0_sel", 0))
    for name, field in (("OMOD", "omod"), ("ABS", "abs"), ("NEG", "neg")):
        scope.set(f"INST.{name}", "u", 3, getattr(inst, field, 0))

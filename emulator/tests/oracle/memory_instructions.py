"""Memory instructions (CDNA3 ISA, sections 8 to 11): LDS, flat, global, scratch, buffers and scalar loads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oracle import memory, operands
from oracle.encoding import bare_name, common_scope, encoding, listing_text
from oracle.operands import Operand, State, operand
from oracle.pcode import Cell, Remote, Scope, run


def scalar_memory(inst: Any, state: State) -> None:
    scope, name = common_scope(state), bare_name(inst)
    offset = memory.sign_extend(inst.offset, 21) if inst.imm else 0
    if inst.soffset_en:
        offset += int(state.scalar[inst.soffset.offset])
    elif not inst.imm:
        offset = int(state.scalar[inst.offset & 127])
    base = state.pair(inst.sbase.offset)
    width = max(operand(inst, "sdata").bits, 32)
    if "BUFFER" in name:
        address = memory.buffer_address(state, inst.sbase.offset, 0, 0, offset & ~3, width // 8)
    else:
        address = (base + offset) & ~3
    scope.arrays["MEM"] = (1, memory.global_cell(state))
    for function in ("CalcScalarGlobalAddr", "CalcScalarBufferAddr"):
        scope.arrays[function] = (0, lambda *_: Cell(128, address, kind="u"))
    for field in ("SBASE", "SOFFSET", "OFFSET"):
        scope.set(field, "u", 64, 0)
    data = sum(int(state.scalar[inst.sdata.offset + n]) << 32 * n for n in range(width // 32))
    scope.cells["SDATA"] = Cell(width, data, register=True)
    scope.cells["RETURN_DATA"] = Cell(64, 0, register=True)
    scope.set("DATA", "b", width, data)
    run(listing_text(inst), scope)
    if "LOAD" in name:
        operands.write_scalar(state, inst.sdata.offset, scope.cells["SDATA"].bits, width)
    elif "ATOMIC" in name and inst.glc:
        size = 64 if "X2" in name else 32
        operands.write_scalar(state, inst.sdata.offset, scope.cells["RETURN_DATA"].bits, size)


def _lanes(state: State) -> list[int]:
    return [lane for lane in range(64) if state.exec >> lane & 1]


def lds(inst: Any, state: State) -> None:
    name, scope = bare_name(inst), common_scope(state)
    if name == "DS_SWIZZLE_B32":
        _swizzle(inst, state)
        return
    if "PERMUTE" in name:
        _lds_permute(inst, state, scope)
        return
    if "_TR_" in name:
        _transposed_read(inst, state)
        return
    if name in ("DS_APPEND", "DS_CONSUME"):
        _count_lanes(inst, state)
        return
    text = listing_text(inst)
    acc = 256 if inst.acc else 0
    offset = inst.offset0 | inst.offset1 << 8
    before = state.copy()
    scope.arrays["MEM"] = (1, memory.own_cell(state.lds))
    scope.arrays["CalcDsAddr"] = (0, _ds_address)
    scope.set("OFFSET", "u", 16, offset)
    scope.set("OFFSET0", "u", 8, inst.offset0)
    scope.set("OFFSET1", "u", 8, inst.offset1)
    width = max(operand(inst, "vdst").bits, 32) if "vdst" in inst.operands else 0
    for lane in _lanes(state):
        address = int(before.vector[inst.addr.offset - 256, lane])
        scope.set("laneID", "u", 32, lane)
        scope.set("ADDR", "u", 32, address if "CalcDsAddr" in text else address + offset)
        scope.set("ADDR_BASE", "u", 32, address)
        for field, cell in (("data0", "DATA"), ("data1", "DATA2")):
            bits = operands.read_vector(before, inst_row(inst, field) + acc, lane, 128)
            scope.set(cell, "b", 128, bits)
        scope.cells["DATA0"] = scope.cells["DATA"]
        old = operands.read_vector(before, inst_row(inst, "vdst") + acc, lane, width) if width else 0
        scope.cells["RETURN_DATA"] = Cell(width or 128, old, register=True)
        for variable in ("tmp", "dst", "addr"):
            scope.cells.pop(variable, None)
        run(text, scope)
        if width:
            bits = scope.cells["RETURN_DATA"].bits
            operands.write_vector(state, inst_row(inst, "vdst") + acc, lane, bits, width)


def inst_row(inst: Any, field: str) -> int:
    return int(getattr(inst, field).offset) - 256


def _ds_address(address: Any, offset0: Any, offset1: Any) -> Cell:
    return Cell(32, address.bits + (offset1.bits << 8 | offset0.bits), kind="u")


def _lds_permute(inst: Any, state: State, scope: Scope) -> None:
    def row(lane: int, number: int) -> Cell:
        def store(low: int, width: int, bits: int) -> None:
            state.vector[number, lane] = bits

        return Remote(lambda low, width: int(state.vector[number, lane]), store, 32)

    scope.arrays["VGPR"] = (2, row)
    scope.set("OFFSET", "u", 16, inst.offset0 | inst.offset1 << 8)
    for cell, field in (("ADDR", "addr"), ("DATA0", "data0"), ("VDST", "vdst")):
        scope.set(cell, "u", 32, inst_row(inst, field))
    run(listing_text(inst), scope)


def swizzle_source(offset: int, lane: int) -> int:
    """DS_SWIZZLE_B32: bit 15 set is a permutation of four lanes, clear is and, or, xor of the lane in groups of 32."""
    if offset >> 15:
        return lane & ~3 | offset >> 2 * (lane & 3) & 3
    return lane & 32 | ((lane & 31) & (offset & 31) | offset >> 5 & 31) ^ offset >> 10 & 31


def _swizzle(inst: Any, state: State) -> None:
    before, offset = state.copy(), inst.offset0 | inst.offset1 << 8
    for lane in _lanes(state):
        source = swizzle_source(offset, lane)
        active = before.exec >> source & 1
        state.vector[inst_row(inst, "vdst"), lane] = before.vector[inst_row(inst, "addr"), source] if active else 0


def _count_lanes(inst: Any, state: State) -> None:
    """DS_APPEND, DS_CONSUME (CDNA3 ISA, opcode descriptions; the address is M0's, as LLVM's intrinsics pass it)."""
    lanes = _lanes(state)
    cell = memory.own_cell(state.lds)((int(state.scalar[operands.M0]) & 0xFFFF) + (inst.offset0 | inst.offset1 << 8))
    before = cell.read(0, 32)
    if lanes:
        step = len(lanes) if "APPEND" in inst.op.name else -len(lanes)
        cell.write(0, 32, (before + step) & 0xFFFFFFFF)
    for lane in lanes:
        state.vector[inst_row(inst, "vdst") + (256 if inst.acc else 0), lane] = before


def _transposed_read(inst: Any, state: State) -> None:
    """DS_READ_B64_TR_B16 (CDNA4 ISA, "LDS transpose read"; LLVM llvm.amdgcn.ds.read.tr16.b64): 16 lanes read 16 rows
    of four 16-bit elements; element e of lane l in the group comes from lane 4 * (l % 4)... see transpose()."""
    bits = int(inst.op.name.rsplit("_B", 1)[1])
    parts = 96 if bits == 6 else 64
    before, offset = state.copy(), inst.offset0 | inst.offset1 << 8
    acc = 256 if inst.acc else 0
    read = memory.own_cell(before.lds)
    loaded = [
        read((int(before.vector[inst_row(inst, "addr"), lane]) + offset) & 0xFFFFFFFF).read(0, parts)
        for lane in range(64)
    ]
    for lane in _lanes(state):
        operands.write_vector(state, inst_row(inst, "vdst") + acc, lane, transpose(loaded, lane, bits, parts), parts)


def transpose(loaded: list[int], lane: int, bits: int, total: int = 64) -> int:
    """Give lane l of a group of 16 column l of a matrix, which has 16 columns and ``total``/bits rows.

    For 16-bit elements, the elements of four lanes are side by side.
    """
    per_lane = total // bits
    group, column = lane & ~15, lane & 15
    lanes_of_row = 16 // per_lane
    result = 0
    for element in range(per_lane):
        source = loaded[group + element * lanes_of_row + column // per_lane]
        result |= (source >> bits * (column % per_lane) & ((1 << bits) - 1)) << bits * element
    return result


def flat(inst: Any, state: State) -> None:
    kind = encoding(inst)
    saddr = (inst.raw >> 48) & 0x7F
    offset = inst.offset if kind == "FLAT" else memory.sign_extend(inst.offset, 13)
    before = state.copy()

    def address(lane: int) -> int:
        row = inst_row(inst, "addr")
        if kind == "SCRATCH":  # sve: the VGPR address is used; it adds to the scalar one
            own = int(before.vector[row, lane]) if inst.sve else 0
            return (own + (0 if saddr == 0x7F else int(before.scalar[saddr])) + offset) & 0xFFFFFFFF
        if kind == "FLAT" or saddr == 0x7F:
            return (operands.read_vector(before, row, lane, 64) + offset) & (1 << 64) - 1
        return (before.pair(saddr) + int(before.vector[row, lane]) + offset) & (1 << 64) - 1

    if "LDS" in inst.op.name:
        _to_lds(inst, state, address, offset, scratch=kind == "SCRATCH")
        return
    data_field, result_field = "data", "vdst"
    _vector_memory(inst, state, before, address, data_field, result_field, bool(inst.sc0))


def buffer(inst: Any, state: State) -> None:
    before = state.copy()
    resource = ((inst.raw >> 48) & 0x1F) * 4
    soffset_code = (inst.raw >> 56) & 0xFF
    soffset = operands.read_scalar(before, soffset_code, Operand("B32", 1, 32), None)
    size = _access_bytes(inst)
    if inst.idxen:
        raise NotImplementedError("indexed buffers")

    def address(lane: int) -> int:
        voffset = int(before.vector[inst_row(inst, "vaddr"), lane]) if inst.offen else 0
        return memory.buffer_address(before, resource, voffset, soffset, inst.offset, size)

    if inst.lds:
        _to_lds(inst, state, address, inst.offset)
        return
    _vector_memory(inst, state, before, address, "vdata", "vdata", bool(inst.sc0))


def _access_bytes(inst: Any) -> int:
    name = inst.op.name
    for word, size in (("BYTE", 1), ("SHORT", 2), ("DWORDX2", 8), ("DWORDX3", 12), ("DWORDX4", 16), ("X2", 8)):
        if word in name:
            return size
    return 8 if "F64" in name else 4


def _to_lds(inst: Any, state: State, address: Callable[[int], int], offset: int, *, scratch: bool = False) -> None:
    """LDS_ADDR = M0 + inst_offset + lane * size (ISA, "Memory buffer load to LDS"); out of range writes 0.

    18 bits of M0 count, of CDNA3 16; lanes of 3 dwords are 16 bytes apart.
    """
    size = max(4, _access_bytes(inst))
    stride = 16 if size == 12 else size
    base = (int(state.scalar[operands.M0]) & (0xFFFF if state.arch == "gfx942" else 0x3FFFF)) + offset
    source, target = memory.global_cell(state), memory.own_cell(state.lds)
    for lane in _lanes(state):
        cell = memory.own_cell(state.scratch[lane]) if scratch else source
        bits = cell(address(lane)).read(0, 8 * _access_bytes(inst))
        if "SBYTE" in inst.op.name or "SSHORT" in inst.op.name:
            bits = memory.sign_extend(bits, 8 * _access_bytes(inst)) & 0xFFFFFFFF
        target(base + lane * stride).write(0, 8 * size, bits)


def _vector_memory(
    inst: Any,
    state: State,
    before: State,
    address: Callable[[int], int],
    data_field: str,
    result_field: str,
    returns: bool,
) -> None:
    name, scope, text = bare_name(inst), common_scope(state), listing_text(inst)
    acc = 256 if inst.acc else 0
    scope.arrays["MEM"] = (1, memory.global_cell(state))
    store, atomic = "STORE" in name, "ATOMIC" in name
    field = data_field if store or atomic else result_field
    width = max(operand(inst, field).bits, 32) if field in inst.operands else 32
    for cell in ("VADDR", "SRSRC", "SOFFSET", "OFFSET", "SADDR"):
        scope.set(cell, "u", 128, 0)
    for lane in _lanes(state):
        where = address(lane)
        if encoding(inst) == "SCRATCH":
            scope.arrays["MEM"] = (1, memory.own_cell(state.scratch[lane]))
        for function in ("CalcGlobalAddr", "CalcFlatAddr", "CalcBufferAddr", "CalcScratchAddr"):
            scope.arrays[function] = (0, lambda *_, at=where: Cell(128, at, kind="u"))
        scope.set("ADDR", "u", 128, where)
        data = operands.read_vector(before, inst_row(inst, field) + acc, lane, width)
        scope.cells["VDATA"] = Cell(width, data, register=True)
        scope.set("DATA", "b", width, data)
        scope.cells["RETURN_DATA"] = Cell(width, 0, register=True)
        for variable in ("tmp", "dst"):
            scope.cells.pop(variable, None)
        run(text, scope)
        if not store and not atomic:
            bits = scope.cells["VDATA"].bits
            operands.write_vector(state, inst_row(inst, result_field) + acc, lane, bits, width)
        elif atomic and returns:
            size = width // 2 if "CMPSWAP" in name else width
            bits = scope.cells["RETURN_DATA"].bits
            operands.write_vector(state, inst_row(inst, result_field) + acc, lane, bits, size)

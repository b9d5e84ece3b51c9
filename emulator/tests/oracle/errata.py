"""Errata of the manual's text in tinygrad: places that can't be meant, and opcodes without a text.

Each change names its reason. They are the only edits: everything else is evaluated as printed.
"""

from __future__ import annotations

_OFFSET = "signext(SIMM16.i16 * 16'4)"
_WIDE = "signext(SIMM16.i16) * 4LL"
_BRANCH = "the 16-bit product would wrap; SIMM16 is sign-extended first (CDNA3 ISA, section 4.1)"
_BRANCHES = (
    *("S_BRANCH", "S_CBRANCH_SCC0", "S_CBRANCH_SCC1", "S_CBRANCH_VCCZ", "S_CBRANCH_VCCNZ"),
    *("S_CBRANCH_EXECZ", "S_CBRANCH_EXECNZ", "S_CALL_B64"),
)
_SCC_B64 = "the result of a bit count has 32 bits; SCC is said to be `result is non-zero`"
_ONCE = "two roundings make more than the promised 1 ulp"
_TURNS = "the operand is in turns and exact; outside [-256, 256] sine is 0 and cosine 1 (opcode description)"
_FREXP = (
    "the exponent that belongs to V_FREXP_MANT's result, of denormals too; 0 for zero (LLVM lowers frexp to the pair)"
)
_RNDNE = "adding 0.5 in f32 rounds; the description has round to nearest even"

# opcode: (printed, meant, reason)
CHANGED: dict[str, tuple[str, str, str]] = {
    **dict.fromkeys(_BRANCHES, (_OFFSET, _WIDE, _BRANCH)),
    "S_BCNT0_I32_B64": ("SCC = D0.u64", "SCC = D0.u32", _SCC_B64),
    "S_BCNT1_I32_B64": ("SCC = D0.u64", "SCC = D0.u32", _SCC_B64),
    **{
        f"V_DIV_FIXUP_F{width}": (
            f"elsif exponent(S1.f{width}) == {most} then",
            f"elsif exponent(S0.f{width}) == {most} then",
            "S1 is finite here; the steps of a quotient near infinity can be NaN, which means too large",
        )
        for width, most in ((32, 255), (64, 2047))
    },
    **{
        f"V_DIV_FIXUP_F{width}{blank}": (
            f"sign_out ? -{kind}_F{width} : {kind}_F{width}",
            f"ldexp(sign_out ? -1.0{suffix} : 1.0{suffix}, {power})",
            "rounded as MODE has it, with the sign",
        )
        for width, suffix in ((32, "F"), (64, ""))
        for blank, kind, power in ((" ", "UNDERFLOW", -9999), ("  ", "OVERFLOW", 9999))
    },
    **{
        f"V_FRACT_{form}": (
            f"D0.{form.lower()} = S0.{form.lower()} + -floor(S0.{form.lower()})",
            f"D0.{form.lower()} = fract(S0.{form.lower()})",
            "the result stays below 1 (LLVM folds `min(x - floor(x), largest below 1)` into it)",
        )
        for form in ("F16", "F32", "F64")
    },
    **{  # one blank more in each name, for each change
        "V_DIV_FIXUP_LEGACY_F16" + " " * n: (printed, meant, "as V_DIV_FIXUP_F16: tmp holds an f16")
        for n, (printed, meant) in enumerate(
            (
                ("tmp = sign_out ? -INF : +INF", "tmp = sign_out ? -INF.f16 : +INF.f16"),
                ("tmp = sign_out ? -0.0 : 0.0", "tmp = sign_out ? -16'0.0 : 16'0.0"),
                ("tmp = cvtToQuietNAN(64'F(S2.f16))", "tmp = 16'F(cvtToQuietNAN(64'F(S2.f16)))"),
                ("tmp = cvtToQuietNAN(64'F(S1.f16))", "tmp = 16'F(cvtToQuietNAN(64'F(S1.f16)))"),
            )
        )
    },
    "V_RSQ_F32": ("1.0F / sqrt(S0.f32)", "rsq(S0.f32)", _ONCE),
    "V_RSQ_F16": ("16'1.0 / sqrt(S0.f16)", "rsq(S0.f16)", _ONCE),
    "V_RSQ_F64": ("1.0 / sqrt(S0.f64)", "rsq(S0.f64)", _ONCE),
    "V_SIN_F32": ("sin(S0.f32 * 32'F(PI * 2.0))", "sin_turns(S0.f32)", _TURNS),
    "V_COS_F32": ("cos(S0.f32 * 32'F(PI * 2.0))", "cos_turns(S0.f32)", _TURNS),
    "V_SIN_F16": ("sin(S0.f16 * 16'F(PI * 2.0))", "sin_turns(S0.f16)", _TURNS),
    "V_COS_F16": ("cos(S0.f16 * 16'F(PI * 2.0))", "cos_turns(S0.f16)", _TURNS),
    "V_FREXP_EXP_I32_F32": ("exponent(S0.f32) - 127 + 1", "frexp_exponent(S0.f32)", _FREXP),
    "V_FREXP_EXP_I32_F64": ("exponent(S0.f64) - 1023 + 1", "frexp_exponent(S0.f64)", _FREXP),
    "V_FREXP_EXP_I16_F16": ("16'I(exponent(S0.f16) - 15 + 1)", "frexp_exponent(S0.f16)", _FREXP),
    "V_CVT_RPI_I32_F32": (
        "floor(S0.f32 + 0.5F)",
        "nearest_up(S0.f32)",
        "adding 0.5 in f32 rounds, of large numbers by 1; rocm-systems (conversion.h) compared with a gfx1201",
    ),
    "V_RNDNE_F32": (
        "D0.f32 = floor(S0.f32 + 0.5F);\nif (isEven(64'F(floor(S0.f32))) && (fract(S0.f32) == 0.5F)) then\n"
        "D0.f32 -= 1.0F\nendif",
        "D0.f32 = round_even(S0.f32)",
        _RNDNE,
    ),
    "V_RNDNE_F64": (
        "D0.f64 = floor(S0.f64 + 0.5);\nif (isEven(floor(S0.f64)) && (fract(S0.f64) == 0.5)) then\n"
        "D0.f64 -= 1.0\nendif",
        "D0.f64 = round_even(S0.f64)",
        _RNDNE,
    ),
    "V_RNDNE_F16": (
        "D0.f16 = floor(S0.f16 + 16'0.5);\nif (isEven(64'F(floor(S0.f16))) && (fract(S0.f16) == 16'0.5)) then\n"
        "D0.f16 -= 16'1.0\nendif",
        "D0.f16 = round_even(S0.f16)",
        _RNDNE,
    ),
    "V_TRIG_PREOP_F64": (
        "64'F((1201'B(2.0 / PI)[1200 : 0] << shift.u32) & 1201'0x1fffffffffffff)",
        "two_over_pi_bits(shift)",
        "kept are the highest 53 bits after the shift: the scale 2**(-53 - shift) and LLVM's use (segment 0 is the "
        "leading one) leave no other reading",
    ),
    **dict.fromkeys(
        ("V_CVT_SCALEF32_F16_FP8", "V_CVT_SCALEF32_F16_BF8"),
        (
            "D0 = tmp.b32",
            "VGPR[laneId][VDST.u32][OPSEL[3].i32 * 16 + 15 : OPSEL[3].i32 * 16].f16 = tmp",
            "LLVM passes the old register on (intrinsic llvm.amdgcn.cvt.scalef32.f16.fp8): the other half is kept",
        ),
    ),
    **{
        f"V_MAD_MIX{part}": (
            "in[0] * in[1] + in[2]",
            "fma(in[0], in[1], in[2])",
            "gfx940 and gfx950 have the fused V_FMA_MIX at this opcode (LLVM: FeatureFmaMixInsts)",
        )
        for part in ("_F32", "LO_F16", "HI_F16")
    },
}

# The numerator is S2, the denominator S1, and S0 one of them.
_DIV_SCALE = """
VCC = 0x0LL;
D0.{t} = S0.{t};
apart = exponent(S2.{t}) - exponent(S1.{t});
if (apart >= {far}) || (apart <= -{far}) then
VCC = 0x1LL
endif;
if (64'F(S2.{t}) == 0.0) || (64'F(S1.{t}) == 0.0) then
D0.{t} = NAN.{t}
elsif apart >= {far} then
if S0.{t} == S1.{t} then
D0.{t} = ldexp(S0.{t}, {power})
endif
elsif exponent(S1.{t}) >= {large} then
if (apart > -{far}) || (S0.{t} == S1.{t}) then
D0.{t} = ldexp(S0.{t}, -{power})
endif
elsif apart <= -{far} then
if S0.{t} != S1.{t} then
D0.{t} = ldexp(S0.{t}, {power})
endif
elsif (exponent(S1.{t}) == 0) || (exponent(S2.{t}) <= {small}) then
D0.{t} = ldexp(S0.{t}, {power})
endif"""

# Opcodes without a listing that change no state.
_QUIET = (
    *("S_NOP", "S_WAITCNT", "S_SETPRIO", "S_SLEEP", "S_SENDMSG", "S_TRAP", "S_ENDPGM", "S_ENDPGM_SAVED"),
    *("S_BARRIER", "S_ICACHE_INV", "S_DCACHE_INV_VOL", "S_DCACHE_WB_VOL", "DS_NOP", "S_DCACHE_INV"),
    *("S_DCACHE_WB", "V_NOP", "S_SETHALT", "S_TTRACEDATA", "S_INCPERFLEVEL", "S_DECPERFLEVEL", "S_MEMTIME"),
    *("S_MEMREALTIME", "S_WAKEUP", "S_ATC_PROBE", "S_ATC_PROBE_BUFFER", "V_CLREXCP", "BUFFER_WBL2"),
    "BUFFER_INV",
)
# Opcodes without a listing, or whose listing is wrong as a whole: the description in prose, written as pseudocode.
ADDED: dict[str, str] = {
    **dict.fromkeys(_QUIET, ""),
    # The listing drops the carry of the mantissa and then rounds to nearest, which would double the bias. Meant is what
    # AMD's HIP emulation of the instruction does: add the random bits below the result's last place and cut.
    **{
        f"V_CVT_SR_{form.upper()}_F32": "\n".join(
            [
                "prev_mode = ROUND_MODE;",
                "ROUND_MODE = ROUND_TOWARD_ZERO;",
                f"tmp.u32 = S0.u32 + S1[31 : {cut}].u32;",
                f"VGPR[laneId][VDST.u32][OPSEL[3 : 2].i32 * 8 + 7 : OPSEL[3 : 2].i32 * 8].{form} "
                f"= f32_to_{form}(tmp.f32);",
                "ROUND_MODE = prev_mode",
            ]
        )
        for form, cut in (("fp8", 12), ("bf8", 11))
    },
    # The listing's sums and shifts of 8-bit slices need 32 bits: it is the average of each byte, rounded by S2's bit.
    "V_LERP_U8": "\n".join(
        [
            "tmp = 0U;",
            *(
                f"tmp += (32'U(S0.u32[{n + 7} : {n}]) + 32'U(S1.u32[{n + 7} : {n}]) + S2.u32[{n}].u32) >> 1U << {n}U;"
                for n in (24, 16, 8, 0)
            ),
            "D0.u32 = tmp",
        ]
    ),
    # The listings don't divide: their scale is always 2**32 or 2**64, and operands are scaled by other rules. These are
    # the rules of AMD's emulator, compared there with a gfx1100 and a gfx1201 (ROCm/rocm-systems, pull request 11613).
    **{
        f"V_DIV_FMAS_F{width}": f"D0.f{width} = fma_scaled(S0.f{width}, S1.f{width}, S2.f{width}, "
        f"VCC.u64[laneId] ? (exponent(S2.f{width}) > {bias} ? {power} : -{power}) : 0)"
        for width, bias, power in ((32, 127, 64), (64, 1023, 128))
    },
    **{
        f"V_DIV_SCALE_{form}": _DIV_SCALE.format(t=form.lower(), far=far, small=small, large=large, power=power)
        for form, far, small, large, power in (("F32", 96, 24, 253, 64), ("F64", 768, 53, 2045, 128))
    },
    "V_EXP_LEGACY_F32": "D0.f32 = pow(2.0F, S0.f32)",
    "V_LOG_LEGACY_F32": "D0.f32 = log2(S0.f32)",
    # The table is not printed: sixteenths of a signed number of four bits (opcode description).
    "V_CVT_OFF_F32_I4": "tmp.i32 = S0.i32 << 28U;\ntmp.i32 = tmp.i32 >> 28U;\nD0.f32 = i32_to_f32(tmp.i32) / 16.0F",
    # The listing names a function that it does not have: as the 8-bit forms below.
    **{
        f"V_CVT_SR_{form.upper()}_F32": "\n".join(
            [
                "prev_mode = ROUND_MODE;",
                "ROUND_MODE = ROUND_TOWARD_ZERO;",
                f"tmp.u32 = S0.u32 + S1[31 : {cut}].u32;",
                f"VGPR[laneId][VDST.u32][OPSEL[3].i32 * 16 + 15 : OPSEL[3].i32 * 16].{form} = f32_to_{form}(tmp.f32);",
                "ROUND_MODE = prev_mode",
            ]
        )
        for form, cut in (("f16", 19), ("bf16", 16))
    },
    # The same with the printed arrays LDS and RETURN_DATA as the memory and the result of the other listings.
    "DS_CONDXCHG32_RTN_B64": "\n".join(
        [
            "addr = (CalcDsAddr(ADDR.b32, OFFSET0.b32, OFFSET1.b32) & 0xfff8U);",
            "RETURN_DATA[31 : 0] = MEM[addr].b32;",
            "RETURN_DATA[63 : 32] = MEM[addr + 4U].b32;",
            "if DATA[31] then",
            "MEM[addr].b32 = { 1'0, DATA[30 : 0] }",
            "endif;",
            "if DATA[63] then",
            "MEM[addr + 4U].b32 = { 1'0, DATA[62 : 32] }",
            "endif",
        ]
    ),
    "V_ACCVGPR_READ": "D0.b32 = S0.b32",
    "V_ACCVGPR_WRITE": "D0.b32 = S0.b32",
    "V_ACCVGPR_MOV_B32": "D0.b32 = S0.b32",
}

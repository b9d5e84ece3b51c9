"""The micro-ops of the core: names, aliases, classes for the counters.

A micro-op is named like its machine opcode in tinygrad, in lower case, unless ALIASES has another name. Sizes and
number formats of operands come from tinygrad's operand table. A new opcode is a name in a set here and a handler in
core/isa/ops/*.cpp; a test compares the two sets.
"""

from __future__ import annotations

import re

from ckpm_emulator.lowering import matrix_table


def _expand(text: str) -> frozenset[str]:
    """Names separated by spaces; a{b,c} stands for ab and ac."""
    names: list[str] = []
    for word in text.split():
        pending = [word]
        while pending:
            current = pending.pop()
            if match := re.search(r"\{([^{}]*)\}", current):
                pending += [current[: match.start()] + part + current[match.end() :] for part in match[1].split(",")]
            else:
                names.append(current)
    return frozenset(names)


_ATOMICS = (
    "{{swap,add,sub,smin,umin,smax,umax,and,or,xor,inc,dec,cmpswap}{,_x2},add_f32,pk_add_f16,pk_add_bf16,"
    "{add,min,max}_f64}"
)
_SCALAR_ATOMICS = "{swap,add,sub,smin,umin,smax,umax,and,or,xor,inc,dec,cmpswap}{,_x2}"

SCALAR = _expand("""
    s_{add,sub,addc,subb}_u32 s_{add,sub}_i32 s_{min,max}_{i32,u32} s_cselect_{b32,b64}
    s_{and,or,xor,andn2,orn2,nand,nor,xnor}_{b32,b64} s_{lshl,lshr}_{b32,b64} s_ashr_{i32,i64} s_bfm_{b32,b64} s_mul_i32
    s_mul_hi_{u32,i32} s_bfe_{u32,i32,u64,i64} s_absdiff_i32 s_lshl{1,2,3,4}_add_u32 s_pack_{ll,lh,hh}_b32_b16
    s_mov_{b32,b64} s_not_{b32,b64} s_wqm_{b32,b64} s_brev_{b32,b64} s_bcnt{0,1}_i32_{b32,b64} s_ff{0,1}_i32_{b32,b64}
    s_flbit_i32_{b32,b64} s_flbit_i32 s_flbit_i32_i64 s_sext_i32_{i8,i16} s_abs_i32 s_quadmask_{b32,b64}
    s_bitreplicate_b64_b32 s_cmov_{b32,b64} s_cmovk_i32 s_bitset{0,1}_{b32,b64}
    s_{and,or,xor,andn2,orn2,nand,nor,xnor,andn1,orn1}_saveexec_b64 s_{andn1,andn2}_wrexec_b64
    s_cmp_{eq,lg,gt,ge,lt,le}_{i32,u32} s_cmp_{eq,lg}_u64 s_bitcmp{0,1}_{b32,b64}
    s_getreg_b32 s_setreg_b32 s_movrel{s,d}_{b32,b64} s_set_gpr_idx_{on,off,idx,mode}
    s_setvskip
""")
BRANCHES = _expand("""
    s_branch s_cbranch_{scc0,scc1,vccz,vccnz,execz,execnz} s_getpc_b64 s_setpc_b64 s_swappc_b64 s_call_b64 s_endpgm
""")
CONTROL = _expand("""
    s_nop s_sleep s_setprio s_sethalt s_ttracedata s_icache_inv s_incperflevel s_decperflevel s_waitcnt s_barrier
    s_sendmsg s_trap
    s_wakeup s_cbranch_{cdbgsys,cdbguser,cdbgsys_or_user,cdbgsys_and_user}
""")
SCALAR_MEMORY = _expand(f"""
    s_load_dword{{,x2,x4,x8,x16}} s_buffer_load_dword{{,x2,x4,x8,x16}} s_memtime s_memrealtime
    s_dcache_{{inv,wb}}{{,_vol}} s{{,_buffer}}_store_dword{{,x2,x4}} s{{,_buffer}}_atomic_{_SCALAR_ATOMICS}
    s_atc_probe{{,_buffer}}
""")
TRANSCENDENTAL = _expand("v_{exp,log,rcp,rsq,sqrt}_{f32,f16} v_{sin,cos}_{f32,f16} v_{rcp,rsq,sqrt}_f64")
VECTOR = TRANSCENDENTAL | _expand("""
    v_{add,sub,subrev,mul,mul_legacy,min,max,min3,max3,med3,fma,fmac,mad,div_fixup,div_scale,div_fmas,ldexp}_f32
    v_{fract,trunc,ceil,floor,rndne,frexp_mant}_f32 v_frexp_exp_i32_f32
    v_mov_b32 v_not_b32 v_bfrev_b32 v_ffbh_u32 v_ffbl_b32 v_ffbh_i32 v_prng_b32 v_sat_pk_u8_i16
    v_{add,sub,subrev}_u32 v_{add,sub}_i32 v_{and,or,xor,xnor}_b32 v_{lshlrev,lshrrev}_b32 v_ashrrev_i32
    v_{min,max,min3,max3,med3}_{u32,i32} v_mul_{i32_i24,u32_u24,hi_i32_i24,hi_u32_u24,lo_u32,hi_u32,hi_i32}
    v_bcnt_u32_b32 v_bfm_b32 v_bfe_{u32,i32} v_bfi_b32 v_alignbit_b32 v_alignbyte_b32 v_add3_u32 v_lshl_add_u32
    v_add_lshl_u32 v_lshl_or_b32 v_and_or_b32 v_or3_b32 v_xad_u32 v_mad_{i32_i24,u32_u24,u32_u16,i32_i16}
    v_sad_{u8,hi_u8,u16,u32} v_lerp_u8 v_perm_b32 v_bitop3_{b32,b16} v_cndmask_b32 v_mbcnt_{lo,hi}_u32_b32
    v_{add,sub,subrev,addc,subb,subbrev}_co_u32
    v_{add,sub,subrev,mul_lo,min,max,mad,min3,max3,med3}_u16 v_{min,max,add,sub,mad,min3,max3,med3}_i16
    v_{lshlrev,lshrrev}_b16 v_ashrrev_i16 v_pack_b32_f16
    v_mov_b64 v_{lshlrev,lshrrev}_b64 v_ashrrev_i64 v_lshl_add_u64 v_mad_u64_u32 v_mad_i64_i32
    v_{add,mul,min,max,fma,fmac,trunc,ceil,floor,rndne,fract,frexp_mant,ldexp,trig_preop}_f64 v_frexp_exp_i32_f64
    v_div_{scale,fmas,fixup}_f64
    v_{add,sub,subrev,mul,min,max,min3,max3,med3,fma,fmac,trunc,ceil,floor,rndne,fract,ldexp}_f16
    v_cvt_f32_{u32,i32,ubyte0,ubyte1,ubyte2,ubyte3,bf16,f16,f64,fp8,bf8} v_cvt_{u32,i32,rpi_i32,flr_i32,f16,f64}_f32
    v_cvt_pk_{bf16,f16,fp8,bf8}_f32 v_cvt_pkrtz_f16_f32 v_cvt_pknorm_{i16,u16}_f32 v_cvt_pk_{u16_u32,i16_i32}
    v_cvt_f16_{u16,i16} v_cvt_{u16,i16}_f16 v_cvt_{i32,u32}_f64 v_cvt_f64_{u32,i32} v_cvt_pk_f32_{fp8,bf8}
    v_cvt_sr_{fp8,bf8}_f32
    v_cvt_scalef32_{pk_{fp8,bf8,fp4},pk32_{fp6,bf6},sr_{fp8,bf8,pk_fp4,pk32_fp6,pk32_bf6}}_{f16,bf16}
    v_cvt_scalef32_{pk_{fp8,bf8,fp4},2xpk16_{fp6,bf6},sr_{fp8,bf8,pk_fp4,pk32_fp6,pk32_bf6}}_f32
    v_cvt_scalef32_{{f32,f16}_{fp8,bf8},pk_{f32,f16,bf16}_{fp8,bf8,fp4},pk32_{f32,f16,bf16}_{fp6,bf6}}
    v_{cmp,cmpx}_{f,lt,eq,le,gt,ne,ge,t}_{i16,u16,i32,u32,i64,u64}
    v_{cmp,cmpx}_{f,lt,eq,le,gt,lg,ge,o,u,nge,nlg,ngt,nle,neq,nlt,tru}_{f16,f32,f64} v_{cmp,cmpx}_class_{f16,f32,f64}
    v_nop v_readfirstlane_b32 v_readlane_b32 v_writelane_b32 v_swap_b32 v_permlane{16,32}_swap_b32
    v_accvgpr_{read,write,mov_b32}
    v_pk_{add,mul,fma}_f32 v_pk_mov_b32 v_pk_{add,mul,min,max,fma}_f16 v_pk_{add,sub,mul_lo,min,max,mad}_u16
    v_pk_{add,sub,min,max,mad}_i16 v_pk_{lshlrev,lshrrev}_b16 v_pk_ashrrev_i16 v_mad_mix_f32 v_mad_mix{lo,hi}_f16
    v_{dot2,dot2c}_f32_{f16,bf16} v_dot4_i32_i8 v_dot4_u32_u8 v_dot4c_i32_i8 v_dot2_{i32_i16,u32_u16}
    v_dot8_{i32_i4,u32_u4} v_dot2c_i32_i16 v_dot8c_i32_i4 v_pk_fmac_f16 v_pk_{minimum3,maximum3}_f16
    v_{mad,div_fixup,frexp_mant}_f16 v_frexp_exp_i16_f16 v_cvt_norm_{i16,u16}_f16 v_cvt_pknorm_{i16,u16}_f16
    v_cube{id,sc,tc,ma}_f32 v_{minimum3,maximum3}_f32 v_cvt_pk_u8_f32 v_cvt_pkaccum_u8_f32 v_cvt_off_f32_i4 v_clrexcp
    v_msad_u8 v_{qsad,mqsad}_pk_u16_u8 v_mqsad_u32_u8 v_ashr_pk_{i8,u8}_i32 v_cvt_sr_{f16,bf16}_f32
    v_{mov_b32,add_u32,mul_f32,accvgpr_read}_indexed
""")
# With the clamp modifier, which keeps the result in its format's range.
CLAMPED = _expand("""
    v_{add,sub,subrev}_u32 v_{add,sub}_i32 v_{add,sub,subrev,mad}_u16 v_{add,sub,mad}_i16 v_mad_{u32_u16,i32_i16}
    v_mad_{u32_u24,i32_i24} v_sad_{u8,hi_u8,u16,u32} v_msad_u8 v_pk_{add,sub,mad}_{u16,i16} v_dot2_{i32_i16,u32_u16}
    v_dot4_{i32_i8,u32_u8} v_dot8_{i32_i4,u32_u4} v_dot2c_i32_i16 v_dot4c_i32_i8 v_dot8c_i32_i4
""")
VECTOR |= frozenset(f"{name}_clamp" for name in CLAMPED)
LDS = _expand("""
    ds_{read,write}_{b32,b64,b96,b128} ds_{read2,write2}_{b32,b64} ds_read_{u8,i8,u16,i16} ds_read_{u8,i8,u16}_d16{,_hi}
    ds_write_{b8,b16} ds_write_{b8,b16}_d16_hi ds_{bpermute,permute,swizzle}_b32 ds_read_b64_tr_{b16,b8,b4}
    ds_{add,sub,rsub,inc,dec,min,max}_u32 ds_{min,max}_i32 ds_{and,or,xor,wrxchg}_b32 ds_{add,min,max}_f32 ds_add_u64
    ds_{and,or,xor,wrxchg}_b64 ds_add_f64 ds_{sub,rsub,inc,dec,min,max}_u64 ds_{min,max}_i64 ds_{min,max}_f64
    ds_pk_add_{f16,bf16} ds_{mskor,cmpst}_{b32,b64} ds_cmpst_{f32,f64} ds_wrap_b32 ds_wrxchg2_{b32,b64}
    ds_condxchg32_b64 ds_{append,consume} ds_{read,write}_addtid_b32 ds_read_b96_tr_b6 ds_nop
""")
_MOVES = "load_{dword{,x2,x3,x4},ubyte,sbyte,ushort,sshort,{ubyte,sbyte,short}_d16{,_hi}}"
_STORES = "store_{dword{,x2,x3,x4},{byte,short}{,_d16_hi}}"
_FORMATS = "{load,store}_format{,_d16}_{x,xy,xyz,xyzw}"
BUFFER = _expand(f"""
    buffer_{_MOVES} buffer_{_STORES} buffer_wbl2 buffer_inv buffer_atomic_{_ATOMICS} {{buffer,tbuffer}}_{_FORMATS}
    buffer_{{load,store}}_format_d16_hi_x
""")
FLAT = _expand(f"""
    {{flat,global,scratch}}_{_MOVES} {{flat,global,scratch}}_{_STORES} global_load_lds_dword{{,x3,x4}}
    scratch_load_lds_dword {{global,scratch}}_load_lds_{{ubyte,sbyte,ushort,sshort}} {{flat,global}}_atomic_{_ATOMICS}
""")


_MATRIX = matrix_table.NAMES
SUPPORTED = SCALAR | BRANCHES | CONTROL | SCALAR_MEMORY | VECTOR | LDS | BUFFER | FLAT | _MATRIX | frozenset({"trap"})

# Machine opcodes whose micro-op has another name.
ALIASES = {
    "v_rcp_iflag_f32": "v_rcp_f32",
    "s_movk_i32": "s_mov_b32",
    "s_addk_i32": "s_add_i32",
    "s_mulk_i32": "s_mul_i32",
    "s_setreg_imm32_b32": "s_setreg_b32",
    "s_endpgm_saved": "s_endpgm",
    "v_fmamk_f32": "v_fma_f32",
    "v_fmaak_f32": "v_fma_f32",
    "v_exp_legacy_f32": "v_exp_f32",
    "v_log_legacy_f32": "v_log_f32",
    "v_mac_f16": "v_mad_f16",
    "v_madmk_f16": "v_mad_f16",
    "v_madak_f16": "v_mad_f16",
    "v_mad_legacy_f16": "v_mad_f16",
    "v_mad_legacy_u16": "v_mad_u16",
    "v_mad_legacy_i16": "v_mad_i16",
    "v_fma_legacy_f16": "v_fma_f16",
    "v_div_fixup_legacy_f16": "v_div_fixup_f16",
    "v_madmk_f32": "v_mad_f32",
    "v_madak_f32": "v_mad_f32",
    "v_fma_legacy_f32": "v_fma_f32",
}


def micro_op_name(machine: str) -> str:
    """The micro-op of a machine opcode, whether supported or not."""
    if machine in ALIASES:
        return ALIASES[machine]
    if machine.startswith("s_cmpk_"):
        return machine.replace("s_cmpk_", "s_cmp_")
    if machine.startswith("ds_"):
        # The same in units of 64 elements, and with the old value returned.
        return machine.replace("2st64_", "2_").replace("_rtn_", "_")
    return machine


def kind_of(name: str) -> str:
    """The counters' class of a micro-op: one of microop.KINDS."""
    if name == "s_waitcnt":
        return "wait"
    if name == "s_barrier":
        return "barrier"
    for names, kind in _KINDS:
        if name in names:
            return kind
    return "other"


_KINDS = (
    (SCALAR, "salu"),
    (BRANCHES, "branch"),
    (SCALAR_MEMORY, "smem"),
    (TRANSCENDENTAL, "trans"),
    (VECTOR, "valu"),
    (LDS, "lds"),
    (BUFFER | FLAT, "vmem"),
    (_MATRIX, "mfma"),
)

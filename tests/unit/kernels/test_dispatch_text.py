"""Conditions and arithmetic of a dispatch are read as C reads them. tests/build/test_parity_changed.py changes one."""

from __future__ import annotations

from string import Template

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpm.base.errors import UpstreamError
from ckpm.kernels.families import render, spellings
from ckpm.kernels.parity.c_arithmetic import CNumber, Formula, evaluate, make
from ckpm.kernels.parity.conditions import TRUE, condition_text, conjuncts, parse_condition
from ckpm.kernels.parity.cpp_tokens import tokenize
from ckpm.kernels.parity.dispatch_text import compare, parse
from ckpm.matrix.dialects import dialect
from ckpm.matrix.selection import Selection, select
from tests.unit.kernels.damaged_text import check_every_damage

# An invented dispatch.
OTHER = """
namespace own {
using T0 = host_traits<1, Half>;
using T1 = host_traits<2, Half>;
using T2 = host_traits<3, Half>;
const Entry table[] = {{"x", &fmha_batch_prefill_<T0>}, {nullptr, nullptr}};
bool units(unsigned& count) { if(gone()) return false; count = card.multiProcessorCount; return true; }
}
float fmha_batch_prefill(Traits request, Args arguments, const Stream& stream)
{
    using namespace own;
    const float min_cu_util_rate = 0.8;
    unsigned num_cus = 0;
    if(!units(num_cus))
        return -1;
    const auto get_num_blocks = [&](unsigned m) {
        return static_cast<unsigned>(a.batch) * static_cast<unsigned>(a.nhead_q) *
               ((static_cast<unsigned>(a.max_seqlen_q) + m - 1) / m);
    };
    if(request.data_type.compare("x") == 0)
    {
        if(request.hdim_v <= 128 && request.hdim_q <= 128)
        {
            if(get_num_blocks(128) < num_cus * min_cu_util_rate && request.lse == true)
                return fmha_batch_prefill_<T0>(stream, arguments);
            else if(request.lse == true && (request.m == B || request.m == A))
                return fmha_batch_prefill_<T1>(stream, arguments);
        }
    }
    else if(request.data_type.compare("y") == 0)
    {
        if(request.hdim_q <= 64)
            if(request.lse == false)
                return fmha_batch_prefill_<T2>(stream, arguments);
    }
    return -1;
}
"""


def test_text_without_dispatch_is_error() -> None:
    with pytest.raises(UpstreamError, match="expected one function fmha_batch_prefill, found 0"):
        parse("int x;")


# What a dispatch doesn't depend on: the table of names, how compute units are counted, types in a signature, the last
# semicolon of a block.
UNREAD = (
    "namespace §own§ {", '§const Entry table[] = {{"x", &fmha_batch_prefill_<T0>}, {nullptr, nullptr}}§;',
    "§bool units(unsigned& count) { if(gone()) return false; count§ =",
    "= §card§.multiProcessorCount", "multiProcessorCount; §return true;§ }", "§float§ fmha_batch_prefill(",
    "(§Traits§ request, Args", "§Args§ arguments, const", "§const Stream&§ stream)", "unsigned §num_cus = 0§;",
    "return -1§;§", "§const auto§ get_num_blocks = [", "= [§&§]", "/ m)§;§",
    "(stream, arguments)§;§ }",
)  # fmt: skip


@pytest.mark.parametrize("piece", ["", "{", ">", "if"])
def test_damaged_text_never_breaks_reader(piece: str) -> None:
    """One token replaced, at every place: the text is read as something else, or refused."""
    check_every_damage(OTHER, parse, piece, UNREAD)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("true", ""),
        ("((a == 1)) && (true) && b", "(a == 1) && (b)"),
        ("a || (b || c) || false", "a || b || c"),
        ("!(!a)", "a"),
        ("!f(x)", "!(f(x))"),
        ("!a == b", "!a == b"),
        ("!std::is_same_v<A, B<1>>", "!(std::is_same_v<A, B<1>>)"),
        ("!a < b", "!a<b"),
        ("a && (b || true)", "a"),
        ("x < y && (false || z)", "(x<y) && (z)"),
    ],
)
def test_conditions_are_canonical(text: str, canonical: str) -> None:
    assert condition_text(parse_condition(tokenize(text))) == canonical


@given(st.permutations(["a == 1", "(b)", "c || d", "true", "!e"]))
def test_order_of_requirements_does_not_matter(parts: list[str]) -> None:
    condition = parse_condition(tokenize(" && ".join(f"({part})" for part in parts)))
    assert conjuncts(condition) == conjuncts(parse_condition(tokenize("a == 1 && b && (d || c) && !e")))
    assert condition != TRUE


@pytest.mark.parametrize("text", ["a &&", "(a", "a)", "|| b", "!"])
def test_broken_condition_is_error(text: str) -> None:
    with pytest.raises(UpstreamError):
        parse_condition(tokenize(text))


TAKEN = "return fmha_batch_prefill_<T2>(stream, arguments);"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "    if(request",
            "    num_cus = num_cus / 4;\n    if(request",
            "'num_cus = num_cus / 4' is neither a declaration",
        ),
        (
            "    if(request",
            "    arguments.heads = 1;\n    if(request",
            "'arguments.heads = 1' is neither a declaration",
        ),
        ("    if(request", "    for(;;) prepare();\n    if(request", "'prepare();' is neither a declaration"),
        ("        return static", "        heads += 1;\n        return static", "'heads+=1' is neither a constant nor"),
        (TAKEN, f"{{ arguments.heads = 1; {TAKEN} }}", "'arguments.heads = 1' is neither a declaration"),
        (TAKEN, f"{{ num_cus = 1; {TAKEN} }}", "'num_cus = 1' is neither a declaration"),
    ],
)
def test_statement_that_may_change_launch_is_error(old: str, new: str, message: str) -> None:
    with pytest.raises(UpstreamError) as caught:
        parse(OTHER.replace(old, new, 1))
    assert message in str(caught.value)


UNLIKE = (
    "dtype: 1 branches of upstream are missing: ",
    "dtype: 1 branches are not upstream's: '!(count_units(num_cus))'",
)


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("units", "compute_units", ()),
        ("-1", "-2", ("without a kernel upstream returns -2, ours -1", "upstream calls <>-2, ours <>-1")),
        ("if(!units(num_cus))", "if(arguments.rows > 128 || !units(num_cus))", UNLIKE),
        ("    const auto", "    if(arguments.rows < 1) return -1;\n    const auto", UNLIKE[:1]),
        ("card.multiProcessorCount", "card.multiProcessorCount / 4", UNLIKE),
    ],
)
def test_early_returns_are_compared(old: str, new: str, lines: tuple[str, ...]) -> None:
    """Their conditions and values count, and not the name of the function that counts compute units."""
    differences = compare(parse(OTHER.replace(old, new)), parse(OTHER), {})
    assert len(differences) == len(lines)
    assert all(fragment in line for fragment, line in zip(lines, differences, strict=True))


U, I = True, False  # noqa: E741


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7 / 2 * 2", CNumber(6, I)),
        ("-7 / 2", CNumber(-3, I)),
        ("-7 % 3", CNumber(-1, I)),
        ("2147483647 + 1", CNumber(-(2**31), I)),
        ("1u - 2", CNumber(2**32 - 1, U)),
        ("unsigned(-1) / 2", CNumber(2**31 - 1, U)),
        ("static_cast<ck_tile::index_t>(4294967295u)", CNumber(-1, I)),
        ("(unsigned)a.n * 65536", CNumber(0, U)),
        ("twice(a.n + 1) - 1", CNumber(131_073, U)),
    ],
)
def test_arithmetic_is_that_of_c(text: str, value: CNumber) -> None:
    twice = Formula((("x", ("unsigned",)),), (("y", ("unsigned",), ("x", "*", "2")),), ("y",), ("unsigned",))
    assert evaluate(tokenize(text), {"a.n": make(65_536, False)}, {"twice": twice}) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 / (2 - 2)", "division by zero"),
        ("b + 1", "no value for 'b'"),
        ("static_cast<long>(1)", "'long' is not a 32-bit integer type"),
        ("1 << 2", "unexpected '<<'"),
    ],
)
def test_unknown_expression_is_refused(text: str, message: str) -> None:
    with pytest.raises(UpstreamError) as caught:
        evaluate(tokenize(text), {}, {})
    assert message in str(caught.value)


# Since 2026 fmha_fwd asks a function with V3's kernels for more than one query, then one with the others (codegen's
# fmha_fwd.py). Written by hand from its rules for two kernels of fp8 in batch mode, without mask or scales.
FWD = """
bool get_num_cus(unsigned& num_cus) { num_cus = props.multiProcessorCount; return true; }
float fmha_fwd_v3(fmha_fwd_traits t, fmha_fwd_args a, const ck_tile::stream_config& s) {
    $START
    if($FEATURES && (true) && (a.hdim_q % 128 == 0) && (a.hdim_v % 128 == 0) && (true)) {
        using trait_ = fmha_fwd_traits_<128, FmhaFwdFp8Bf16, false, 256, 64, 128, 128, 64, 128, true,
            ck_tile::BlockFmhaPipelineEnum::QRKSVS_ASYNC_TRLOAD_V3, false, FmhaMasks::NoMask, $REST,
            true, true, false, false, true, false, false>;
        return fmha_fwd_<trait_, ck_tile::gfx950_t>(s, a);
    } }}} return r; }
float fmha_fwd_v2(fmha_fwd_traits t, fmha_fwd_args a, const ck_tile::stream_config& s) {
    $START
    if($FEATURES && (true) &&
       ((a.cu_seqlen_k_ptr == nullptr) && (a.seqlen_k != 0 && a.seqlen_k % 128 == 0)) && (true)) {
        using trait_ = fmha_fwd_traits_<128, FmhaFwdFp8Bf16, false, 128, 128, 32, 128, 32, 128, true,
            ck_tile::BlockFmhaPipelineEnum::QRKSVS_ASYNC, false, ck_tile::SimplifiedGenericAttentionMask<false>, $REST,
            true, false, true, true, false, false, false>;
        return fmha_fwd_<trait_, ck_tile::gfx950_t>(s, a);
    } }}} return r; }
float fmha_fwd(fmha_fwd_traits traits, fmha_fwd_args args, const ck_tile::stream_config& config) {
    if(args.max_seqlen_q > 1) { float r = fmha_fwd_v3(traits, args, config); if(r >= 0) return r; }
    return fmha_fwd_v2(traits, args, config);
}
"""
_PARTS = {
    "START": """float r = -1;
    const float min_cu_util_rate = 0.8;
    unsigned num_cus;
    if(!get_num_cus(num_cus)) { return r; }
    auto get_num_blocks = [&](unsigned m) {
        return (unsigned)a.batch * (unsigned)a.nhead_q * (((unsigned)a.max_seqlen_q + m - 1) / m); };
    const std::string device_name = ck_tile::get_device_name();
    if(device_name.compare(0, 6, "gfx950") == 0) {
    if(t.data_type.compare("fp8bf16") == 0) {
    if(t.hdim_q <= 128 && t.hdim_v <= 128) {""",
    "FEATURES": """(t.is_group_mode == false) && (t.is_v_rowmajor == true) && (t.has_logits_soft_cap == false) &&
        (t.mask_type == mask_enum::no_mask) &&
        (t.bias_type == bias_enum::no_bias) && (t.has_lse == false) && (t.has_dropout == false) &&
        (t.has_sink == false) && (t.qscale_type == quant_scale_enum::no_scale) && (t.skip_min_seqlen_q == false)""",
    "REST": """ck_tile::BlockAttentionBiasEnum::NO_BIAS, false, false,
            ck_tile::BlockAttentionQuantScaleEnum::NO_SCALE""",
}
UPSTREAM_FWD = Template(FWD).substitute(_PARTS)
FWD_KERNELS = (
    "_b128x128x32x128x32x128_r4x1x1_r4x1x1_w32x32x32_w32x32x32_qr_async_vr_psddv_nlogits_nbias_nmask_nlse_ndropout_nskip"
    "_nqscale_ntrload_nsink_gfx950",
    "_b256x64x128x128x64x128_r8x1x1_r8x1x1_w32x32x32_w32x32x32_qr_async_trload_v3_vr_pssk_nlogits_nbias_nmask_nlse_ndropout"
    "_nskip_nqscale_trload_nsink_gfx950",
)


def test_function_of_v3_is_nest_tried_first() -> None:
    name = "rocm-libraries-2026"
    where = f"key.name in {tuple(f'fmha_fwd_d128_fp8bf16_batch{kernel}' for kernel in FWD_KERNELS)}"
    keys = select(dialect(name), Selection(archs=("gfx950",), families=("fwd",), where=(where,)))
    rendered = parse(render.dispatch_text(keys, spellings.features(name)), "fmha_fwd")
    assert compare(parse(UPSTREAM_FWD, "fmha_fwd"), rendered, {}) == []
    for old, new in (("args.max_seqlen_q > 1", "args.max_seqlen_q > 2"), ("seqlen_k % 128", "seqlen_k % 64")):
        assert compare(parse(UPSTREAM_FWD.replace(old, new), "fmha_fwd"), rendered, {})
    for old, new, message in (
        ("if(r >= 0) return r;", "return r;", "does not try fmha_fwd_v3 under one condition"),
        ("return fmha_fwd_v2", "args.batch = 1; return fmha_fwd_v2", "does not try fmha_fwd_v3 under one condition"),
        ("float r = -1;", "float r = 0;", "fmha_fwd_v3 and fmha_fwd_v2 differ before or after their kernels"),
    ):
        with pytest.raises(UpstreamError, match=message):
            parse(UPSTREAM_FWD.replace(old, new, 1), "fmha_fwd")

"""A function that launches several kernels through templates: no token of it is passed over.

tests/build/test_parity_changed.py has what is read out of upstream's texts and ours.
"""

from __future__ import annotations

import pytest

from ckpm.base.errors import UpstreamError
from ckpm.kernels.parity.bindings import Binding
from ckpm.kernels.parity.conditions import Condition, condition_text, parse_condition
from ckpm.kernels.parity.cpp_constants import decide_constants
from ckpm.kernels.parity.cpp_tokens import tokenize
from ckpm.kernels.parity.launches import launches
from tests.unit.kernels.damaged_text import check_every_damage
from tests.unit.shared import replace_text

# Kernels in two invented styles: constants that C++ decides, and only what is needed.
LONG = """
#if !defined(HOST) || (defined(CARD))
using element_0 = Half;
namespace {
template <bool kOdd, int kWide = 1>
struct instance {
using shape = lib::seq<64, kWide>; // with a ; and a {
using problem = lib::Problem<typename Config<element_0>::In, shape, kOdd>;
using kernel = lib::Kernel<lib::Pipe<problem>>;
static void run(const lib::Stream& s, host_args a)
{
    using k_ = kernel;
    auto [one, two] = lib::setup<k_>(a);
    const dim3 threads = k_::Threads();
    constexpr int per_cu = k_::kPerCu;
    lib::make_kernel<per_cu, lib::card>(k_{}, two, threads, 0, one)(lib::Stream{s.id});
}
}; // struct instance
} // namespace
using trait_0 = host_traits<128, element_0>;
#pragma clang diagnostic push
namespace {
template <bool kOdd>
void run_instance(const lib::Stream& s, host_args a) {
    if constexpr (128 == 128 && std::is_same_v<FmhaMasks::NoMask, FmhaMasks::NoMask>) {
        if (a.rows == 1 && a.few < a.many) {
            instance<kOdd, /*kWide=*/2>::run(s, a);
        } else {
            instance<kOdd>::run(s, a);
        }
    } else {
        instance<kOdd, 4>::run(s, a);
    }
}
}
#pragma clang diagnostic pop
template<>
void host_launch_<trait_0, lib::card>(const lib::Stream& s, host_args a)
{
    if constexpr(false == false) {
        if (a.lengths != nullptr) {
            run_instance<true>(s, a);
        } else if (a.length % (a.parts * 64) == 0) {
            run_instance<false>(s, a);
        }
    } else {
        run_instance</*kOdd=*/true>(s, a);
    }
}
template<>
std::string host_name_<trait_0, lib::card>() { using k_ = instance<true>::kernel; return k_::Name(); }
#endif
"""
SHORT = """
#if defined(CARD) || !defined(HOST)
namespace own::k3 {
using Types = Config<Half>;
using Dispatch = host_traits<128, Half>;
namespace {
template <bool Odd, int Wide>
struct One
{
    using Kernel = lib::Kernel<lib::Pipe<lib::Problem<Types::In, lib::seq<64, Wide>, Odd>>>;
    static void start(const lib::Stream& stream, host_args args)
    {
        auto [kargs, grid] = lib::setup<Kernel>(args);
        lib::make_kernel<Kernel::kPerCu, lib::card>(Kernel{}, grid, Kernel::Threads(), 0, kargs)(
            lib::Stream{stream.id});
    }
};
template <bool Odd>
void choose(const lib::Stream& stream, host_args args)
{
    if(args.rows == 1 && args.few < args.many)
        One<Odd, 2>::start(stream, args);
    else
        One<Odd, 1>::start(stream, args);
}
}
}
template <> void host_launch_<own::k3::Dispatch, lib::card>(const lib::Stream& stream, host_args args)
{
    ckpm::note_selected("name", 0);
    if(args.lengths != nullptr)
        own::k3::choose<true>(stream, args);
    else if(args.length % (args.parts * 64) == 0)
        own::k3::choose<false>(stream, args);
}
#endif
"""


def only(text: str) -> tuple[Binding, ...]:
    (bindings,) = launches(text, ["host_launch_"])
    return bindings


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "using k_ = kernel;",
            "prepare(a);",
            "'prepare(argument1)' is neither a declaration nor a known call nor a launch",
        ),
        ("using k_ = kernel;", "for(;;) {}", "a loop or a bare block"),
        ("using k_ = kernel;", "const int r = lib::make_kernel<1>(kernel{}, 1)(s);", "launches inside a declaration"),
        ("using k_ = kernel;", "\n#if A\n", "'# if A' inside a function"),
        ("(k_{},", "(thing,", "is not given a kernel object"),
        ("struct instance {", "struct instance { static void run() {}", "an overload in a class template"),
        ("bool kOdd, int", "bool... kOdd, int", "a template parameter must have a name"),
        ("int kWide = 1", "int kWide", "parameter kWide is given no value"),
        ("instance<kOdd>::run(s, a)", "instance<kOdd, 1, 2>::run(s, a)", "of 2 parameters is given 3"),
        ("instance<kOdd>::run(s, a)", "instance<kOdd>::run(s)", "run of 2 parameters is given 1"),
        ("instance<kOdd>::run(s, a)", "run_instance<kOdd>(s, a)", "calls itself"),
        ("(a.rows == 1", "(instance<kOdd>::fits(a)", "instance is a template of the text"),
        ("#pragma clang diagnostic pop", "template <> void run_instance<true>(S s, A a) {}", "specialised there, too"),
        ("#pragma clang diagnostic pop", "template <int I> void run_instance(S s) {}", "two templates 'run_instance'"),
        ("#pragma clang diagnostic push", "#endif\n#if A", "compiled under other conditions"),
        ("false == false", "false", "launches nothing"),
    ],
)
def test_text_that_cannot_be_followed_is_error(old: str, new: str, message: str) -> None:
    text = replace_text(LONG, old, new)
    if "nothing" in message:
        text = text.replace("        run_instance</*kOdd=*/true>(s, a);", "")
    with pytest.raises(UpstreamError) as caught:
        only(text)
    assert message in str(caught.value)


# What launches don't depend on: types in a signature and of template parameters, the note, separators.
UNREAD = (
    "own §::§ k3 {", "<§bool§ Odd", "§int§ Wide", "§static void§ start", "(§const lib::Stream&§ stream",
    "§host_args§ args", "kargs§,§ grid] =", "{stream.id})§;§", "§void§ choose", "(stream, args)§;§ }",
    "§template <> void§ host_launch_", '(§"name", 0§);',
)  # fmt: skip


@pytest.mark.parametrize("piece", ["", "{", ">", ";", "::", "if", "struct", "choose"])
def test_damaged_text_never_breaks_reader(piece: str) -> None:
    """One token replaced, at every place: the text is read as something else, or refused."""
    check_every_damage(SHORT, lambda text: launches(text, ["host_launch_"]), piece, UNREAD, "\n")


def value(text: str) -> Condition:
    return decide_constants(parse_condition(tokenize(text)))


@pytest.mark.parametrize(
    ("text", "decided"),
    [
        ("128 == 128 && true != false", ""),
        ("64 == 128", "false"),
        ("a && 0 == 0", "a"),
        ("std::is_same_v<FmhaFwdFp16, FmhaFwdFp8> || b", "b"),
        ("!(std::is_same_v<X<1>, X<1>>)", "false"),
        ("ck_tile::BlockAttentionBiasEnum::ALIBI == ck_tile::BlockAttentionBiasEnum::NO_BIAS", "false"),
        ("std::is_same_v<FmhaFwdFp16, FmhaMasks::NoMask>", "std::is_same_v<FmhaFwdFp16, FmhaMasks::NoMask>"),
        ("true == 1", "true == 1"),
    ],
)
def test_constants_are_decided_only_where_they_are_known(text: str, decided: str) -> None:
    assert condition_text(value(text)) == decided

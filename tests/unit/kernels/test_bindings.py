"""Names, guards and types of a text are read whatever their form. tests/build/test_parity_live.py has changed ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpm.base.errors import UpstreamError
from ckpm.kernels.families import batch_prefill, spellings
from ckpm.kernels.families.render import instance_text, plan_units, unit_text
from ckpm.kernels.parity.bindings import Binding, bindings
from ckpm.kernels.parity.cpp_constants import fold_constants
from ckpm.kernels.parity.cpp_text import read
from ckpm.kernels.parity.cpp_tokens import spell, tokenize
from ckpm.matrix.dialects import dialect, dialect_names
from tests.unit.enumerated import keys_of
from tests.unit.kernels.damaged_text import check_every_damage

# A kernel in two invented styles: flat aliases and constants, and namespaces with everything written in place.
FLAT = """
#include "lib.hpp"
using element_7 = Half; // a comment with ; and {
using tile_7 = lib::seq<64, 128>;
using traits_7  = lib::Traits< true,
                               Bias::NONE, /* , */ -1>;
using kernel_7 = lib::Kernel<lib::Pipe<lib::Problem<typename Config<element_7>::In, tile_7, traits_7>>,
                             lib::Epilogue<typename Config<Half>::Out>>;
using key_7 = host_traits<64, element_7, Bias::NONE>;
template<>
float fmha_batch_prefill_<key_7>(const Stream& s, Args a)
{
    using k = kernel_7;
    if(s.log_level_ > 0) { std::cout << k::Name(); }
    auto [one, two] = lib::setup<k>(a);
    const dim3 threads = k::BlockSize();
    constexpr int per_cu = k::kPerCu;
    return lib::launch_kernel(s, lib::make_kernel<per_cu>(k{}, two, threads, 0, one));
}
"""
NESTED = """
namespace own::k3 {
using Types = Config<Half>;
using Kernel = lib::Kernel<lib::Pipe<lib::Problem<Types::In, lib::seq<64,128>, lib::Traits<true, Bias::NONE, -1>>>,
    lib::Epilogue<Types::Out>>;
using Key = host_traits<64, Half, Bias::NONE>;
} // namespace own::k3
template <> float fmha_batch_prefill_<own::k3::Key>(const Stream& stream, Args arguments) {
    using Kernel = own::k3::Kernel;
    ckpm::note_selected("name");
    auto [kargs, grid] = lib::setup<Kernel>(arguments);
    return lib::launch_kernel(stream, lib::make_kernel<Kernel::kPerCu>(Kernel{}, grid, Kernel::BlockSize(), 0, kargs));
}
"""


def only(text: str) -> Binding:
    (binding,) = bindings(text)
    return binding


@pytest.mark.parametrize(
    ("condition", "guard"),
    [
        ("!defined(__HIP_DEVICE_COMPILE__) || (true)", ""),
        ("1", ""),
        ("!defined(A) || (defined(B) || defined(C))", "!(defined(A)) || defined(B) || defined(C)"),
        ("defined C || !defined(A) || defined(B) // why", "!(defined(A)) || defined(B) || defined(C)"),
        ("defined(B) && !(!defined(A))", "(defined(A)) && (defined(B))"),
    ],
)
def test_guards_are_canonical(condition: str, guard: str) -> None:
    assert only(f"#if {condition}\n{FLAT}\n#endif\n").guard == guard


def test_guards_nest_and_else_negates() -> None:
    text = f"#ifdef A\nint x;\n#else\n#ifndef B\n{FLAT}\n#endif\n#endif"
    assert only(text).guard == "(!(defined(A))) && (!(defined(B)))"


def test_constant_expression_is_bracketed_where_it_is_used() -> None:
    text = FLAT.replace("per_cu = k::kPerCu", "per_cu = 1 + 1").replace("<per_cu>", "<per_cu * 2>")
    assert only(text).launch == "(1 + 1) * 2"


def test_names_are_looked_up_from_inside_out() -> None:
    text = """
    using T = Outer;
    namespace a { using T = Middle; namespace b { using U = T; } using V = b::U; }
    namespace c { using T = Inner; using W = ::T; using X = a::T; using Y = a::Unknown; using Z = other::T; }
    """
    names = {"::".join(name): spell(meaning) for name, meaning in read(text).names.items()}
    assert names == {
        "T": "Outer",
        "a::T": "Middle",
        "a::b::U": "Middle",
        "a::V": "Middle",
        "c::T": "Inner",
        "c::W": "Outer",
        "c::X": "Middle",
        "c::Y": "a::Unknown",
        "c::Z": "other::T",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("using A = x; using A = y;", "'A' means 'x' and 'y'"),
        ("int f() {", "the bracket of '{' is never closed"),
        ('using A = "half;\n', "line 1: '\"' starts nothing that is C++"),
        ("#define Half Float\n", "macros are not followed"),
        ("template <class T> using U = T;", "only plain aliases are followed"),
        (
            FLAT.replace("std::cout << k::Name();", "return 1;"),
            "'if(s.log_level_>0){return 1;}' is neither a declaration",
        ),
        (FLAT.replace("<< k::Name()", "<< (a.rows = 1)"), "is neither a declaration"),
        (FLAT.replace("s.log_level_ > 0", "a.rows > 0"), "is neither a declaration"),
        (FLAT.replace("const dim3", "two.y = 1;\nconst dim3"), "'two.y = 1' is neither a declaration nor the return"),
        (
            FLAT.replace("const dim3", "if(a.left > 0) one.scale = 0;\nconst dim3"),
            "'if(a.left>0){one.scale = 0;}' is nei",
        ),
        (FLAT.replace("const dim3", "for(;;) one.scale = 0;\nconst dim3"), "'one.scale = 0;' is neither a declaration"),
        (FLAT.replace("const dim3", "\n#if A\nconst dim3"), "'# if A' is neither a declaration"),
        (FLAT.replace("k::kPerCu", "(a.rows = 1)"), "assigns inside a declaration"),
        (FLAT.replace("return lib", "return 1; return lib"), "is neither a declaration nor the return"),
        ("template<> float fmha_batch_prefill_<K>(S s) { return -1; }", "returns no make_kernel"),
        (FLAT.replace("k{}", "thing"), "is not given a kernel object"),
        (FLAT.replace("k{}", "{}"), "is not given a kernel object"),
    ],
)
def test_text_that_cannot_be_followed_is_error(text: str, message: str) -> None:
    with pytest.raises(UpstreamError) as caught:
        bindings(text)
    assert message in str(caught.value)


# What a binding doesn't depend on: types in a signature, the note, separators.
UNREAD = (
    "own §::§ k3 {", "§template <> float§ fmha_batch_prefill_", "(§const Stream&§ stream, Args",
    "stream, §Args§ arguments", '(§"name"§);', "kargs§,§ grid] =", "0, kargs))§;§",
)  # fmt: skip


@pytest.mark.parametrize("piece", ["", "{", "}", ">", "<", ";", "::", "=", "if", "namespace", "[", "("])
def test_damaged_text_never_breaks_reader(piece: str) -> None:
    """One token replaced, at every place: the text is read as something else, or refused."""
    check_every_damage(NESTED, bindings, piece, UNREAD)


def test_reader_that_passes_over_token_is_noticed() -> None:
    with pytest.raises(AssertionError, match=r"unnoticed, in .*note_selected"):
        check_every_damage(NESTED, bindings, "", [passage for passage in UNREAD if '"name"' not in passage])


Type = str | tuple[str, list["Type"]]
_NAMES = st.sampled_from(["A", "lib::B", "C2", "ns::deep::D"])
_TYPES: st.SearchStrategy[Type] = st.recursive(
    st.one_of(st.integers(0, 300).map(str), st.booleans().map(lambda b: str(b).lower()), _NAMES),
    lambda inner: st.tuples(_NAMES, st.lists(inner, min_size=1, max_size=4)),
    max_leaves=12,
)


def written(node: Type) -> str:
    return node if isinstance(node, str) else f"{node[0]}<{', '.join(written(part) for part in node[1])}>"


def with_aliases(node: Type, choose: Callable[[int], int]) -> str:
    """The same type with some parts moved to aliases, in namespaces or not, and with layout and comments."""
    lines: list[str] = []

    def alias_parts(part: Type) -> str:
        if isinstance(part, str):
            text = part
        else:
            text = part[0] + ("<" if choose(2) else "< /* < */ ") + ",\n ".join(map(alias_parts, part[1])) + ">"
        name = f"alias_{len(lines)}"
        match choose(4):
            case 0:
                lines.append(f"using {name} = {text};")
                return f"typename {name}" if choose(2) else f"::{name}"
            case 1:
                lines.append(f"namespace own::n{choose(3)} {{ using {name} = {text}; }}")
                return f"{lines[-1].split()[1]}::{name}"
        return text

    end = alias_parts(node)
    return "\n".join([*lines, f"using RESULT = {end};"])


@given(_TYPES, st.data())
def test_aliases_never_change_type(node: Type, data: st.DataObject) -> None:
    text = with_aliases(node, lambda n: data.draw(st.integers(0, n - 1)))
    assert spell(read(text).names[("RESULT",)]) == written(node)


@given(
    st.lists(
        st.sampled_from(["a", "b1", "2", "::", "<", ">", ",", "&", "&&", "-", "->", "(", ")", "==", "=", ".", "0.5"])
    )
)
def test_spelling_loses_nothing(tokens: list[str]) -> None:
    assert tokenize(spell(tokens)) == tuple(tokens)


@pytest.mark.parametrize(
    "name",  # what includes our own headers is compared with no codegen
    [name for name in dialect_names() if dialect(name).detection and not spellings.features(name).own_headers],
)
def test_unit_binds_what_its_instances_bind(name: str) -> None:
    keys = keys_of(name, "batch_prefill")[::101]
    features = spellings.features(name)
    for unit in plan_units(keys):
        apart = [only(instance_text(key, features)) for key in unit.keys]
        assert bindings(unit_text(unit, features)) == apart
        for key, binding in zip(unit.keys, apart, strict=True):
            assert binding.dispatch_trait == batch_prefill.trait(key, features)
            assert ("__gfx950__" in binding.guard) == (key.load == "gload")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Traits<(8 > 0), (0 > 0)>", "Traits<true, false>"),
        ("seq<16, ck_tile::min(32, 16)>", "seq<16, 16>"),
        ("std::conditional_t<false, last_traits<64, true>, void>", "void"),
        ("f<std::conditional_t<true, last_traits<(1 > 0)>, void>, int>", "f<last_traits<true>, int>"),
        # what isn't known here stays
        ("(n > 0)", "(n > 0)"),
        ("ck_tile::min(n, 16)", "ck_tile::min(n, 16)"),
        ("std::conditional_t<n, a, b>", "std::conditional_t<n, a, b>"),
        ("less<a, (b)>", "less<a, (b)>"),
    ],
)
def test_constants_are_put_as_their_value(text: str, value: str) -> None:
    assert spell(fold_constants(tokenize(text))) == spell(tokenize(value))

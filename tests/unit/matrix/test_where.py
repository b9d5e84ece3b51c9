"""--where compares fields of a key and does nothing else: no call, no look-up, no Python of any other kind."""

from __future__ import annotations

import ast
import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpm.base.errors import WhereError
from ckpm.matrix.keys import Key
from ckpm.matrix.where import compile_where
from tests.unit.enumerated import keys_of


@functools.cache
def keys(name: str) -> list[Key]:
    return keys_of(name, "batch_prefill")


def count(text: str, name: str = "ck-2025-11") -> int:
    keep = compile_where(text)
    return sum(keep(key) for key in keys(name))


# The set of November 2025 has 384 kernels: its axes are independent except for logits/bias (4 pairs) and mode/pad (3).
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("key.hdim_q == 128 and key.pipeline == 'qr_async'", 384),
        ("key.dtype == 'fp16'", 192),
        ("key.dtype != 'fp16' and key.mode == 'group'", 64),
        ("key.logits", 96),
        ("not key.logits and key.bias in ('bias', 'alibi')", 192),
        ("key.bias not in ['bias', 'alibi']", 192),
        ("key.bias in {'bias'} or key.logits == True", 192),
        ("64 <= key.tile.bm0 < 128", 192),
        ("key.tile.word == 'b64x128x64x128x64x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16'", 192),
        ("'_psskddv_' in key.name", 256),
        ("key.hdim_q == key.hdim_v", 384),
        ("(key.dtype == 'fp16') == True", 192),
        ("(key.dtype == 'fp16' or key.logits) != (key.logits or False)", 144),  # fp16 without logits: half of 288
        ("key.page_size in (None, 16)", 384),
        ("key.page_size > 1", 0),
        ("  True ", 384),
    ],
)
def test_expression_selects_count_of_kernels(text: str, expected: int) -> None:
    assert count(text) == expected


REFUSED = [
    ("keep(key)", "'keep(key)': 'keep(key)' is not allowed; "),
    ("__import__('os').system('true')", "is not allowed; use key.FIELD, constants, comparisons, in, and, or, not"),
    ("key.name.startswith('x')", "'key.name.startswith('x')' is not allowed; "),
    ("key.__class__", "unknown field 'key.__class__'"),
    ("key.row", "unknown field 'key.row'"),
    ("key.hdimq == 128", "unknown field 'key.hdimq'; did you mean 'key.hdim_q'?"),
    ("other.dtype == 'x'", "unknown field 'other.dtype'; did you mean 'key.dtype'?"),
    ("key", "'key' is not allowed; "),
    ("dtype == 'fp16'", "unknown 'dtype'; did you mean 'key.dtype'?"),
    ("key.dtype == bf16", "unknown 'bf16'; a word has quotes: 'bf16'"),
    ("key.name[0] == 'f'", "'key.name[0]' is not allowed; "),
    ("(lambda: 1)", "is not allowed; "),
    ("(x := 1)", "is not allowed; "),
    ("[x for x in key.name]", "is not allowed; "),
    ("key.hdim_q + 1 == 129", "'key.hdim_q + 1' is not allowed; "),
    ("9 ** 9 ** 9", "is not allowed; "),
    ("-key.hdim_q < 0", "'-key.hdim_q' is not allowed; "),
    ("~1", "'~1' is not allowed; "),
    ("1j", "is not allowed; "),
    ("key.hdim_q in 0x" + "f" * 20000, "ff...': a number of more than 64 bits"),
    ("0x" + "f" * 20000 + " + 1", "ff...': a number of more than 64 bits"),
    ("key.hdim_q < 1" + "0" * 20, "00000': a number of more than 64 bits; no field has one"),
    ("key.sink is None", "'is' is not allowed; compare with == or !="),
    ("", "'': it is empty; leave it out, or write e.g. key.hdim_q == 128"),
    ("key.dtype = 'fp16'", "invalid syntax; two values are compared with =="),
    ("key.dtype ==", "does not parse at column "),
    ("import os", "does not parse at column "),
    ("True; True", "does not parse at column "),
    ("key.dtype\0", "does not parse at column "),
    ("9" * 5000, "does not parse at column "),
    (
        "key.hdim_q == '128'",
        """"key.hdim_q == '128'": key.hdim_q is a number, '128' is text; compare values of one kind""",
    ),
    ("64 < key.tile.bm0 <= '128'", "key.tile.bm0 is a number, '128' is text; "),
    ("key.dtype == ('fp16', 'bf16')", "key.dtype is text, ('fp16', 'bf16') is a list; "),
    ("key.dtype in ('fp16', 16)", "key.dtype is text, 16 is a number; "),
    ("128 in key.name", "128 is a number, key.name is text; "),
    ("key.dtype in key.hdim_q", "key.hdim_q is a number, which 'in' can't search; "),
    ("(not key.logits) == 'no'", "not key.logits is a number, 'no' is text; "),
    ("key.mask == 'causl'", "key.mask is never 'causl'; did you mean 'causal'? Its words: no, mask, causal, generic"),
    ("'fp61' != key.dtype", "key.dtype is never 'fp61'; did you mean 'fp16'? "),
    ("key.tile.when == 'few_block'", "key.tile.when is never 'few_block'; did you mean 'few_blocks'"),
    ("not " * 51 + "True", "nested more than 50 deep"),
    ("not " * 20_000 + "True", " nested "),  # or by Python's own parser
    ("(" * 20_000 + "1" + ")" * 20_000, " nested "),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_expression_outside_grammar_is_refused(text: str, message: str) -> None:
    with pytest.raises(WhereError) as caught:
        compile_where(text)
    assert message in str(caught.value)


def test_long_but_flat_expressions_are_fine() -> None:
    assert count(" or ".join(["key.hdim_q == 64"] * 200 + ["key.dtype == 'fp16'"])) == 192
    assert count("not " * 40 + "key.logits") == 96


def test_message_names_option_where_one_was_typed() -> None:
    with pytest.raises(WhereError, match=r"^--where 'key\.x': unknown field"):
        compile_where("key.x", option="--where ")


ALLOWED = (
    ast.Expression, ast.Constant, ast.Tuple, ast.List, ast.Set, ast.Attribute, ast.Name, ast.Load, ast.BoolOp, ast.And,
    ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Compare, ast.cmpop,
)  # fmt: skip
atoms = st.sampled_from(
    ["key", "key.dtype", "key.tile.bm0", "key.__dict__", "128", "'fp16'", "None", "x", "()", "key.name", "print"]
)
expressions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["==", "and", "or", "in", "+", "is", "if", ":=", "**"]), inner).map(
            lambda parts: f"({' '.join(parts)})"
        ),
        inner.map(lambda text: f"not {text}"),
        inner.map(lambda text: f"{text}()"),
        inner.map(lambda text: f"{text}[0]"),
        inner.map(lambda text: f"{text}.__class__"),
        inner.map(lambda text: f"(lambda: {text})"),
        st.tuples(inner, inner).map(lambda parts: f"{parts[0]}({parts[1]})"),
    ),
    max_leaves=6,
)


@settings(max_examples=200)
@given(st.one_of(expressions, st.text(max_size=40)))
def test_any_text_is_refused_or_safe(text: str) -> None:
    """Either a WhereError that quotes the text, or an expression of fields, constants and logic alone."""
    refused = ""
    try:
        compile_where(text)
    except WhereError as error:
        refused = str(error)
    if refused:
        assert refused.startswith(f"{text!r}: ")
        return
    tree = ast.parse(text.strip(), mode="eval")
    assert all(isinstance(node, ALLOWED) for node in ast.walk(tree))
    assert {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} <= {"key"}
    assert not any("__" in node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))

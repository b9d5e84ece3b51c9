"""Foreign text is shown without an effect on a terminal, and by a CommonMark parser without markup."""

from __future__ import annotations

import io
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from ckpm.base.display import code_span, join_lines, markdown, one_line, printable, show

HOSTILE = (
    *("\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "a\rb", "a\x08b", "\u202eabc", "\u2066a\u2069", "\u200fa", "a\u2028b"),
    *("\x9b31m", "\ud800", "\0", "\ufeff", "a\nerror: b", "a\vb\fc", "\U000e0041"),
)
MARKUP = (
    *("a|b", "`a`", "``", "<script>x</script>", "<!-- a", "&lt;", "&#124;", "[a](b)", "![a](b)", "*a*", "**a**", "_a_"),
    *("~~a~~", "# a", "- a", "+ a", "1. a", "1) a", "> a", "---", "===", "a\\", "\\|", "<a@b.c>", "    a", "a  \nb"),
    *("[a]: b", "~~~", "***", "__a__", "a_b_c", "_a b_", "|-|", "&a;", "@someone", "a @someone", "$x$", ""),
)
TEXTS = st.text() | st.lists(st.sampled_from([*HOSTILE, *MARKUP, " ", "a", "_", "*", "`", "|", "\n"])).map("".join)
READER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def steers(character: str) -> bool:
    """True if a character controls a terminal or its line instead of being drawn."""
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")


@given(TEXTS)
@example("".join(HOSTILE))
def test_printable_does_not_control_terminal(text: str) -> None:
    assert not [character for character in printable(text) if steers(character) and character not in "\n\t"]
    assert not [character for character in one_line(text) if steers(character)]
    printable(text).encode()  # half a surrogate pair would be an error


@given(st.text(st.characters(codec="ascii", exclude_categories=["Cc"])))
def test_printable_keeps_plain_text(text: str) -> None:
    assert printable(text) == one_line(text) == text
    assert printable(f"{text}\n\t{text}") == f"{text}\n\t{text}"


def test_line_break_and_escape_are_shown_as_text() -> None:
    assert one_line("a\nerror: b") == "a\\nerror: b"
    assert printable("a\x1b[31m\u202eb\n") == "a\\x1b[31m\\u202eb\n"
    assert one_line("x" * 50, 10) == "xxxxxxxx.."


def text_of(document: str) -> tuple[str, set[str]]:
    """The text that a reader sees, and the kinds of its tokens."""
    kinds: set[str] = set()
    texts = []

    def walk(tokens: list[Token]) -> None:
        for token in tokens:
            if token.children is None:
                kinds.add(token.type)
            walk(token.children or [])
            texts.extend([token.content] if token.type in ("text", "code_inline") else [])

    walk(READER.parse(document))
    return "".join(texts), kinds


PLAIN = {"text", "html_inline"}  # a comment, so that `@name` is not a mention
ITEM = {"bullet_list_open", "list_item_open", "paragraph_open", "paragraph_close", "list_item_close"}


@given(TEXTS)
@example("".join(MARKUP))
def test_cell_shows_only_its_text(text: str) -> None:
    shown = one_line(" ".join(text.split()), 300)
    row, kinds = text_of(f"| a | b |\n| --- | --- |\n| {markdown(text)} | end |\n")
    assert row == f"ab{shown}end"
    assert kinds - PLAIN <= {
        f"{kind}_{end}" for kind in ("table", "thead", "tbody", "tr", "th", "td") for end in ("open", "close")
    }
    item, kinds = text_of(f"- {markdown(text)}\n")
    assert item == shown
    assert kinds - PLAIN <= {*ITEM, "bullet_list_close"}
    assert "<" not in markdown(text).replace("<!-- -->", "")


@given(TEXTS)
def test_code_span_shows_only_its_text(text: str) -> None:
    shown = one_line(" ".join(text.split()), 300)
    item, kinds = text_of(f"- {code_span(text)}\n")
    assert item == (shown or "  ")
    assert kinds - {"text", "code_inline"} <= {*ITEM, "bullet_list_close"}


@pytest.mark.parametrize("text", [text for text in MARKUP if not text.isspace() and text not in ("", "a_b_c", "&a;")])
def test_reader_finds_unescaped_markup(text: str) -> None:
    """The reader of the other tests finds each markup if it is not escaped."""
    documents = (f"| a | b |\n| --- | --- |\n| {text} | end |\n", f"- {text}\n")
    cell, kinds = text_of(documents[0])
    item, item_kinds = text_of(documents[1])
    unmentioned = "@" in text or "$" in text  # GitHub's, which CommonMark does not have
    assert (
        unmentioned or cell != f"ab{text}end" or item != text or (kinds | item_kinds) - PLAIN - ITEM or text.isspace()
    )


def test_mention_is_escaped() -> None:
    assert markdown("ask @somebody") == "ask @<!-- -->somebody"
    assert markdown("name@sha256:ab") == "name@sha256:ab"


def test_show_prints_printable_text() -> None:
    stream = io.StringIO()
    show("a\x1bb", file=stream)
    assert stream.getvalue() == "a\\x1bb\n"


def test_joined_lines_have_spaces_between_them() -> None:
    assert join_lines("1536 missing:\n  a\n\n  b\x1b[31m") == "1536 missing: a b\\x1b[31m"
    assert join_lines("a\nbcdefgh", 6) == "a bc.."

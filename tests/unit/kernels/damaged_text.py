"""Texts in which one token after the other is replaced, for the readers of C++: none may be passed over.

A token that a reader's result depends on is refused or makes it read something else. What it need not look at is named
by the test: a reader that grows blind to more fails it, and so does one that crashes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from ckpm.base.errors import UpstreamError
from ckpm.kernels.parity.cpp_tokens import tokenize


def unread_places(tokens: Sequence[str], passages: Collection[str]) -> set[int]:
    """The positions of the tokens between the two § of each passage of the text."""
    places: set[int] = set()
    for passage in passages:
        before, unread, after = (tokenize(part) for part in passage.split("§"))
        wanted = (*before, *unread, *after)
        starts = [at for at in range(len(tokens)) if tuple(tokens[at : at + len(wanted)]) == wanted]
        assert starts, f"'{passage}' is not in the text"
        places |= {at + len(before) + more for at in starts for more in range(len(unread))}
    return places


def check_every_damage(
    text: str, read: Callable[[str], Any], replacement: str, unread: Collection[str], between: str = " "
) -> None:
    """Replace every token in turn by ``replacement`` and read: only those of ``unread`` may make no difference."""
    tokens = tokenize(text)
    whole = read(between.join(tokens))
    ignorable = unread_places(tokens, unread)
    refusals = []
    for at, token in enumerate(tokens):
        try:
            reading = read(between.join([*tokens[:at], replacement, *tokens[at + 1 :]]))
        except UpstreamError as error:
            refusals.append(str(error))
            continue
        context = between.join(tokens[max(0, at - 5) : at + 6])
        assert reading != whole or token == replacement or at in ignorable, f"token {at} unnoticed, in '{context}'"
    assert refusals
    assert all(refusals), "refused without a reason"

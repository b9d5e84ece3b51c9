"""How our commands are called: ``python -m matrix`` or ``nox -s`` in a clone, ``ckpm matrix`` where ckpm was started.

Messages are written for a clone. ``ckpm`` says in an environment variable, which child processes inherit, that it was
started, and :func:`as_called` then spells the commands in a message so that they can be copied from it.
"""

from __future__ import annotations

import os
import re

_VARIABLE = "CKPM_PROGRAM"  # set by ckpm/__main__.py
_SPELLINGS = tuple(
    (re.compile(pattern), spelled)
    for pattern, spelled in (
        (r"python -m suites\b", "ckpm test"),
        (r"python -m (matrix|kernels|reports|attention|ckpm_emulator)\b", r"ckpm \1"),
        (r"nox -s build-(\w+) test-([\w-]+)", r"ckpm kernels build --arch \1, then ckpm test --suite \2"),
        (r"nox -s build-(\w+)(?: --(?= ))?", r"ckpm kernels build --arch \1"),
        (r"nox -s test-fwd(?: --(?= ))?", "ckpm test --suite kernels"),
        (r"nox -s test-([\w-]+)(?: --(?= ))?", r"ckpm test --suite \1"),
        (r"nox -s sanitize-(\w+)(?: --(?= ))?", r"ckpm test --suite sanitize --arch \1"),
        (r"nox -s perf-(gate|accept)(?: --(?= ))?", r"ckpm reports \1"),
        (r"nox -s parity(?: --(?= ))?", "ckpm kernels parity"),
    )
)


def as_called(text: str) -> str:
    """``text`` with our commands as the user of this process calls them; unchanged unless ckpm was started."""
    if _VARIABLE not in os.environ:
        return text
    for pattern, spelled in _SPELLINGS:
        text = pattern.sub(spelled, text)
    return text

"""A stand-in for an engine's program: it writes down how it was called and answers from a list.

It is a shell script without external programs: tests take PATH away.
"""

from __future__ import annotations

import shlex
from pathlib import Path

_SCRIPT = """#!/bin/sh
here={folder}
for word; do printf '%s\\0' "$word"; done >> $here/calls
printf '\\036\\0' >> $here/calls
key=$1
[ -d "$here/$1-$2" ] && key=$1-$2
[ -d "$here/$key" ] || exit 0
number=0
[ -f "$here/$key/count" ] && read -r number < "$here/$key/count"
echo $((number + 1)) > "$here/$key/count"
[ -f "$here/$key/$number" ] || read -r number < "$here/$key/last"
. "$here/$key/$number"
"""

Answer = tuple[int, str, str]  # exit code, standard output, standard error


class FakeEngine:
    """``answers``: by the first word or two of a command, one answer for each call; the last is given ever after.

    A command that no answer fits succeeds and says nothing.
    """

    def __init__(self, folder: Path, name: str, answers: dict[str, list[Answer]]) -> None:
        self.folder = folder / name
        self.folder.mkdir(parents=True)
        self.program = folder / "bin" / name
        self.program.parent.mkdir(exist_ok=True)
        for start, replies in answers.items():
            place = self.folder / start.replace(" ", "-")
            place.mkdir()
            (place / "last").write_text(f"{len(replies) - 1}\n")
            for number, (code, out, err) in enumerate(replies):
                said = f"printf '%s\\n' {shlex.quote(out)}\nprintf '%s\\n' {shlex.quote(err)} >&2\n"
                (place / str(number)).write_text(f"{said}exit {code}\n")
        self.program.write_text(_SCRIPT.format(folder=shlex.quote(str(self.folder))))
        self.program.chmod(0o755)

    def calls(self, start: str = "") -> list[list[str]]:
        """Arguments of each call that began with these words."""
        file = self.folder / "calls"
        text = file.read_text() if file.exists() else ""
        calls = [call.split("\0")[:-1] for call in text.split("\x1e\0")[:-1]]
        words = start.split()
        return [call for call in calls if call[: len(words)] == words]

"""A stand-in for an engine's program, which records its calls and answers from a list.

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
    """``answers``: for the first word or two of a command, an answer for each call. The last answer is repeated.

    A command without an answer succeeds and prints nothing.
    """

    def __init__(self, folder: Path, name: str, answers: dict[str, list[Answer]]) -> None:
        self.folder = folder / name
        self.folder.mkdir(parents=True)
        self.program = folder / "bin" / name
        self.program.parent.mkdir(exist_ok=True)
        for start, replies in answers.items():
            folder_of_answers = self.folder / start.replace(" ", "-")
            folder_of_answers.mkdir()
            (folder_of_answers / "last").write_text(f"{len(replies) - 1}\n")
            for number, (code, out, err) in enumerate(replies):
                script = f"printf '%s\\n' {shlex.quote(out)}\nprintf '%s\\n' {shlex.quote(err)} >&2\n"
                (folder_of_answers / str(number)).write_text(f"{script}exit {code}\n")
        self.program.write_text(_SCRIPT.format(folder=shlex.quote(str(self.folder))))
        self.program.chmod(0o755)

    def calls(self, start: str = "") -> list[list[str]]:
        """Arguments of each call that begins with these words."""
        file = self.folder / "calls"
        text = file.read_text() if file.exists() else ""
        calls = [call.split("\0")[:-1] for call in text.split("\x1e\0")[:-1]]
        arguments = start.split()
        return [call for call in calls if call[: len(arguments)] == arguments]

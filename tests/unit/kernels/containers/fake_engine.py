"""A stand-in for an engine's program: it writes down how it was called and answers from a list."""

from __future__ import annotations

import json
import sys
from pathlib import Path

_SCRIPT = """#!{python}
import json, sys
from pathlib import Path
here = Path({folder!r})
calls = here / "calls"
with calls.open("a") as stream:
    stream.write(json.dumps(sys.argv[1:]) + chr(10))
answers = json.loads((here / "answers").read_text())
for start, replies in answers.items():
    if sys.argv[1:1 + len(start.split())] == start.split():
        count = here / start.replace(" ", "-")
        number = int(count.read_text()) if count.exists() else 0
        count.write_text(str(number + 1))
        code, out, err = replies[min(number, len(replies) - 1)]
        print(out)
        print(err, file=sys.stderr)
        sys.exit(code)
"""

Answer = tuple[int, str, str]  # exit code, standard output, standard error


class FakeEngine:
    """``answers``: by the first words of a command, one answer for each call; the last is given again and again.

    A command that no answer fits succeeds and says nothing.
    """

    def __init__(self, folder: Path, name: str, answers: dict[str, list[Answer]]) -> None:
        self.folder = folder / name
        self.folder.mkdir(parents=True)
        self.program = folder / "bin" / name
        self.program.parent.mkdir(exist_ok=True)
        (self.folder / "answers").write_text(json.dumps(answers))
        self.program.write_text(_SCRIPT.format(python=sys.executable, folder=str(self.folder)))
        self.program.chmod(0o755)

    def calls(self, start: str = "") -> list[list[str]]:
        """Arguments of each call that began with these words."""
        file = self.folder / "calls"
        calls = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        words = start.split()
        return [call for call in calls if call[: len(words)] == words]

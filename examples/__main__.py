"""``python -m examples [NAME...]``: run the examples, and compare their output with docs/reference/examples.md.

Without names, all; exit code 1 if one fails or prints something else. Kernels that aren't there are compiled first, all
at once, so that a row's seconds are the example's own.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence

from ckpm.attention.jit.compiling import compile_each, where
from ckpm.base.display import show
from ckpm.kernels.families.libraries import library_with
from examples.kernels import ARCH, SETS, declare
from tests.docs.pages import ROOT, blocks
from tests.docs.running import not_printed

PAGE = ROOT / "docs/reference/examples.md"
_COMMAND = "python -m examples."


def read_outputs() -> dict[str, tuple[str, ...]]:
    """Return the output lines of each example on the page, in the page's order."""
    page = list(blocks(PAGE.name, PAGE.read_text(encoding="utf-8")))
    commands = [command for block in page if block.kind == "console" for command in block.commands()]
    return {
        command.text.removeprefix(_COMMAND): command.output for command in commands if command.text.startswith(_COMMAND)
    }


def run(name: str, lines: Sequence[str]) -> tuple[str, str]:
    """Run one example; return its verdict and its output."""
    command = [sys.executable, "-m", f"examples.{name}"]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False
    )
    if done.returncode != 0:
        return f"FAILED with exit code {done.returncode}", done.stdout
    if missing := not_printed(lines, done.stdout.splitlines()):
        return f"FAILED: {PAGE.name} has a line that the example did not print: {missing}", done.stdout
    return "passed", done.stdout


def compile_all() -> int:
    """Compile the kernels that the cache lacks; return their number."""
    compiled = 0
    firsts = [instance for instance in declare(*SETS) if library_with(instance.key.family) == instance.key.family]
    for upstream in sorted({instance.upstream for instance in firsts}):
        keys = [instance.key for instance in firsts if instance.upstream == upstream]
        compiled += sum(kernel.compiled for kernel in compile_each(keys, ARCH, where(upstream)))
    return compiled


def main(names: Sequence[str]) -> int:
    page = read_outputs()
    if unknown := [name for name in names if name not in page]:
        show(f"no example is named {unknown[0]}: {', '.join(page)}.")
        return 2
    start = time.monotonic()
    compiled = compile_all()
    rows = [(f"{compiled} kernels compiled", time.monotonic() - start, "passed")]
    for name in names or page:
        start = time.monotonic()
        verdict, output = run(name, page[name])
        show(f"== {name}\n{output}")
        rows.append((name, time.monotonic() - start, verdict))
    show(f"{'example':<20} {'seconds':>7}")
    for what, seconds, verdict in rows:
        show(f"{what:<20} {seconds:7.1f} {verdict}")
    return int(any(verdict != "passed" for _, _, verdict in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

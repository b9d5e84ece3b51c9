"""``python -m emulator coverage|inspect FILE...``: what files' GPU code needs of the emulator, and what it tells."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from emulator.errors import EmulatorError, UnknownInstructionError
from emulator.inspection import inspect as inspection
from emulator.options import ARCHS


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0, or the exit code of the error's class."""
    program = "ckpm emulator" if "CKPM_PROGRAM" in os.environ else "python -m emulator"
    parser = argparse.ArgumentParser(prog=program, description="The emulated gfx9 device.")
    commands = parser.add_subparsers(dest="command", required=True)
    cover = commands.add_parser("coverage", help="list the opcodes that files need and what is missing")
    cover.add_argument("files", nargs="+", type=Path, metavar="FILE", help="library, object, bundle or code object")
    cover.add_argument("-v", "--verbose", action="store_true", help="every opcode and modifier with its count")
    look = commands.add_parser("inspect", help="each kernel's hot loop, and loads used before they are back, as JSON")
    look.add_argument("file", type=Path, metavar="FILE", help="library, object, bundle or code object")
    look.add_argument("--arch", choices=list(ARCHS), required=True, help="of which code objects")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.command == "inspect":
            print(inspection.as_json(inspection.inspect(chosen.file, chosen.arch)))
            return 0
        from emulator.inspection import coverage  # only here: it imports the decoder's tables

        found = [coverage.cover(path) for path in chosen.files]
    except EmulatorError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(coverage.report(found, verbose=chosen.verbose))
    return UnknownInstructionError.exit_code if any(one.missing for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())

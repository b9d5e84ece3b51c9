"""The command line of kernels/: a thin table of commands; every known failure becomes its message and exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from matrix.errors import CkPrefillError


def parser() -> argparse.ArgumentParser:
    from kernels import build_command
    from matrix.options import add_selection_options

    root = argparse.ArgumentParser(prog="python -m kernels", description="Build and check CK batch-prefill kernels.")
    commands = root.add_subparsers(dest="command", required=True)

    build = commands.add_parser("build", help="build a library of kernels")
    add_selection_options(build, tier="smoke")
    build_command.add_options(build)
    build.set_defaults(run=build_command.build)

    manifest = commands.add_parser("manifest", help="write manifest.json for a built plan (called by the build)")
    manifest.add_argument("plan", type=Path)
    manifest.set_defaults(run=_manifest)
    return root


def _manifest(args: argparse.Namespace) -> int:
    from kernels.manifest import write_manifest

    write_manifest(args.plan)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit code. Prints ``error: ...`` for failures that a user can mend."""
    try:
        args = parser().parse_args(argv)
        code: int = args.run(args)
    except CkPrefillError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("error: interrupted; run the same command again to go on", file=sys.stderr)
        return 130
    return code

"""``python -m programs NAME``: compile hip/NAME.hip if need be; print the path of the program."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from programs.program_builder import SOURCES, sample


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="python -m programs", description=__doc__, allow_abbrev=False)
    arguments.add_argument("name", choices=sorted(file.stem for file in SOURCES.glob("*.hip")))
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    print(sample(parser().parse_args(argv).name))
    return 0


if __name__ == "__main__":
    sys.exit(main())

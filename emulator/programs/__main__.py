"""``python -m tests.programs NAME``: compile tests/data/programs/NAME.hip if need be; print the path of the program."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.programs.program_builder import DATA, sample


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="python -m tests.programs", description=__doc__, allow_abbrev=False)
    arguments.add_argument("name", choices=sorted(file.stem for file in DATA.glob("*.hip")))
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    print(sample(parser().parse_args(argv).name))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The conversion of float32 to bf16 in a build, read from ``ck_tile/core/config.hpp`` with its compiler and flags.

CK takes the compiler's conversion, which rounds to nearest, from HIP 6.5.50421 on. Before it, and in CK of mid-2025, CK
has conversions of its own, and ``CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT`` chooses one. Without it CK truncates.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence

from ckpm.base.errors import SetupError, UsageError
from ckpm.kernels.code.toolchains.base import version_output

COMPILER = "compiler"
TRUNCATING = ("truncate", "truncate_with_nan")
CONFIG = "ck_tile/core/config.hpp"
CHOICE = "CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT"
BUILTIN = "CK_TILE_USE_LLVM_BUILTIN_BF16"
_PREFIX = "CK_TILE_FLOAT_TO_BFLOAT16_"  # of the names of conversions
_MACRO = re.compile(r"^#define (CK_TILE_\w+) (\w+)$", re.MULTILINE)
_DEFINITION = re.compile(rf"{CHOICE}=[0-9]|{BUILTIN}=[01]")


def add_definitions(parser: argparse.ArgumentParser) -> None:
    """Add ``-D``, spelled as CK, aiter and flash-attn spell it."""

    def definition(text: str) -> str:
        if not _DEFINITION.fullmatch(text):
            raise argparse.ArgumentTypeError(f"'{text}' is neither {CHOICE}=N nor {BUILTIN}=0 or 1")
        return f"-D{text}"

    parser.add_argument(
        "-D", dest="definitions", action="append", default=[], type=definition, metavar="NAME=N",
        help=f"how bf16 is rounded: {CHOICE}=3 is to nearest, 2 truncates, which CK does without the compiler's bf16",
    )  # fmt: skip


def bf16_conversion(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """The conversion in a unit that ``command`` compiles: ``compiler``, or CK's word, such as ``truncate``.

    It is '' for a CK that has no conversions of its own, and leaves open who converts.

    Raises:
        SetupError: the compiler can't read the header.
        UsageError: the header has no conversion of the chosen number.
    """
    preprocess = [*command[: command.index("-c")], "--offload-host-only", "-E", "-dM", "-include", CONFIG, "/dev/null"]
    done = version_output(preprocess, environment, "repair the compiler")
    if done.returncode != 0:
        raise SetupError(f"{command[0]} can't read {CONFIG}, which chooses how bf16 is rounded: {done.stderr}")
    macros: dict[str, str] = dict(_MACRO.findall(done.stdout))
    if macros.get(BUILTIN) == "1":
        return COMPILER
    if CHOICE not in macros:
        return ""
    number = macros.get(macros[CHOICE], macros[CHOICE])
    names = {macros[name]: name.removeprefix(_PREFIX) for name in macros if name.startswith(_PREFIX) and name != CHOICE}
    if number not in names:
        choices = ", ".join(f"{value} ({name.lower()})" for value, name in sorted(names.items()))
        raise UsageError(f"{CHOICE}={number}: this CK has no such conversion, and truncates. It has {choices}.")
    return names[number].lower()

"""The runs of upstream's smoke test of its forward example that our configurations have kernels for.

The unchanged script runs with a program that records its arguments in the example's place.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ckpm.base.settings import cache_folder
from ckpm.kernels.upstream import trees
from tests.programs.example_program import ARCH, Configuration, configurations

_RECORDER = '#!/bin/sh\necho "$*" >> "$CKPM_ARGUMENTS"\n'
_HEAD_DIMS = (32, 64, 128, 256)  # of the example's kernels; a smaller head is padded
_EXACT = re.compile(r"_npad_")  # kernels only for lengths that fill tiles


class Features(NamedTuple):
    """The features of a run that select its kernel."""

    prec: str
    group: bool
    head_dim: int
    mask: bool
    lse: bool
    bias: str
    dropout: bool


@cache
def script_lines() -> tuple[str, ...]:
    """The argument lines of the script, in its order, each once."""
    tree = trees.locate("aiter", cache=cache_folder())
    with tempfile.TemporaryDirectory() as folder:
        program, lines = Path(folder) / "tile_example_fmha_fwd", Path(folder) / "arguments"
        program.write_text(_RECORDER)
        program.chmod(0o755)
        done = subprocess.run(
            ["bash", str(tree.fmha / "script/smoke_test_fwd.sh")],
            cwd=folder,
            env={**os.environ, "GPU_arch": ARCH, "CKPM_ARGUMENTS": str(lines)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return tuple(dict.fromkeys(lines.read_text().splitlines()))


def features(arguments: str) -> Features:
    """The features of an argument line, with the program's defaults for the others."""
    values = dict(word.removeprefix("-").partition("=")[::2] for word in arguments.split())
    widths = [int(values.get(name, "0")) for name in ("d", "d_v")]
    return Features(
        prec=values.get("prec", "fp16"),
        group=values.get("mode", "0") == "1",
        head_dim=min((head_dim for head_dim in _HEAD_DIMS if head_dim >= max(widths)), default=0),
        mask=values.get("mask", "0") not in ("0", "n"),
        lse=values.get("lse", "0") == "1",
        bias=values.get("bias", "n")[:1],
        dropout=float(values.get("p_drop", "0")) > 0,
    )


def _needs_padding(arguments: str) -> bool:
    """True if K ends within a tile, or has a length for each sequence: our configurations' kernels pad."""
    values = dict(word.removeprefix("-").partition("=")[::2] for word in arguments.split())
    lengths = values.get("s_k", values.get("s", "0")).split(",")
    return values.get("mode", "0") == "1" or all(int(length) == 0 or int(length) % 32 for length in lengths)


def runnable() -> dict[str, Configuration]:
    """The script's runs with the features of one of our configurations, by argument line."""
    kernels: dict[Features, str] = {}
    for configuration in configurations().values():
        if not _EXACT.search(configuration.kernels) and "soft_cap" not in configuration.arguments:
            kernels.setdefault(features(configuration.arguments), configuration.kernels)
    return {
        line: Configuration(name=line, kernels=kernels[features(line)], arguments=line)
        for line in script_lines()
        if features(line) in kernels and _needs_padding(line)
    }

"""Upstream's own example program for fmha_fwd, built from the packaged tree and run with its CPU verification.

Its verdict on a configuration is upstream's, of upstream's kernels, host code and reference. The executable of a
configuration has the kernels of that configuration alone (a whole one has 3,004); its main file is compiled once.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from ckpm.base.settings import cache_folder
from ckpm.kernels.code import toolchains
from ckpm.kernels.upstream import trees
from tests.programs.program_builder import compiled, kept, linked, toolchain

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).parent / "example_fmha_fwd.yaml"
ARCH = "gfx950"
# CK's CMake files: fp8 of gfx950 is OCP's, for host code too; one kernel family of those that the program can call.
_DEFINITIONS = ("-DCK_TILE_USE_OCP_FP8=1", "-DCK_TILE_FMHA_FWD_SPLITKV_API=0", "-DCK_TILE_FMHA_FWD_APPENDKV_API=0")
_EVERY_RUN = ("-v=1", "-warmup=0", "-repeat=1")


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """A run of the program."""

    name: str
    kernels: str
    arguments: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the program ended with, and what it said."""

    exit_code: int
    output: str

    @property
    def valid(self) -> bool:
        """Whether the program compared its kernel's output with its reference's and took them for equal."""
        return self.exit_code == 0 and "valid:y" in self.output


@cache
def configurations() -> dict[str, Configuration]:
    """Those of the table, by name."""
    rows = yaml.safe_load(TABLE.read_text())["configurations"]
    return {row["name"]: Configuration(**row) for row in rows}


def verdict(configuration: Configuration, *extra: str, program: Path | None = None) -> Verdict:
    """Build the program if need be, unless another one is given, and run it on the emulated device; ``extra`` arguments
    come last.
    """
    words = (*_EVERY_RUN, *configuration.arguments.split(), *extra)
    file = program or executable(configuration)
    command = [sys.executable, "-m", "ckpm_emulator", "run", "--arch", ARCH, "--", str(file), *words]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return Verdict(exit_code=done.returncode, output=done.stdout)


def executable(configuration: Configuration) -> Path:
    """tile_example_fmha_fwd with the kernels of a configuration. Raises AssertionError: a step of its build failed."""
    tc, tree = toolchain(), trees.locate("aiter", cache=cache_folder(), say=lambda _: None)
    common = (*toolchains.describe(tc).values(), tree.identity, ARCH, *_DEFINITIONS)
    made = kept("example", *common, configuration.kernels) / "tile_example_fmha_fwd"
    if made.is_file():
        return made
    sources = _generated(tree, configuration.kernels, made.parent)
    units = [
        compiled(tc, source, source.with_suffix(".o"), archs=[ARCH], includes=tree.includes, extra=_DEFINITIONS)
        for source in sources
    ]
    return linked(tc, [_main(tree, common), *units], made)


def _main(tree: trees.Tree, common: tuple[str, ...]) -> Path:
    """The object of the program's main file, the same for every configuration."""
    source, made = tree.fmha / "example_fmha_fwd.cpp", kept("example-main", *common) / "example_fmha_fwd.o"
    return compiled(toolchain(), source, made, archs=[ARCH], includes=tree.includes, extra=_DEFINITIONS)


def _generated(tree: trees.Tree, kernels: str, folder: Path) -> list[Path]:
    """What upstream's codegen writes for kernels: their instances and the dispatch among them."""
    words = ("--api", "fwd", "--receipt", "0", "--targets", ARCH, "--filter", f"fmha_fwd_{kernels}")
    command = [sys.executable, "-B", str(tree.fmha / "generate.py"), *words, "--output_dir", str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    sources = sorted(folder.rglob("*.cpp"))
    assert len(sources) > 1, f"upstream has no kernel {kernels}"
    return sources

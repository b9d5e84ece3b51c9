"""Upstream's own example program for fmha_fwd, built from the packaged tree and run with its CPU verification.

The verdict on a configuration is upstream's, with upstream's kernels, host code and reference. The executable of a
configuration contains only its own kernels (of 3,004). The main file is compiled once.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from ckpm.base.settings import cache_folder
from ckpm.kernels.upstream import trees
from ckpm.kernels.upstream.tree import Tree
from programs.program_builder import cache_of, compile_object, identity, link

EMULATOR = Path(__file__).parents[2] / "emulator"
TABLE = Path(__file__).parent / "example_fmha_fwd.yaml"
ARCH = "gfx950"
# From CK's CMake files: OCP's fp8 for gfx950, for host code too; only one of the program's kernel families.
_DEFINITIONS = (
    *("-DCK_TILE_USE_OCP_FP8=1", "-DCK_TILE_FMHA_FWD_FAST_EXP2=1"),
    *("-DCK_TILE_FMHA_FWD_SPLITKV_API=0", "-DCK_TILE_FMHA_FWD_APPENDKV_API=0"),
)
_EVERY_RUN = ("-v=1", "-warmup=0", "-repeat=1")


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """A run of the program."""

    name: str
    kernels: str
    arguments: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The exit code of the program and its output."""

    exit_code: int
    output: str

    @property
    def valid(self) -> bool:
        """True if the program's comparison with its reference passed."""
        return self.exit_code == 0 and "valid:y" in self.output


@cache
def configurations() -> dict[str, Configuration]:
    """The configurations of the table, by name."""
    rows = yaml.safe_load(TABLE.read_text())["configurations"]
    return {row["name"]: Configuration(**row) for row in rows}


def verdict(configuration: Configuration, *extra: str, program: Path | None = None, checks: str = "") -> Verdict:
    """Run the program, or another ``program``, on the emulated device. ``extra`` arguments come last."""
    arguments = (*_EVERY_RUN, *configuration.arguments.split(), *extra)
    file = program or executable(configuration)
    command = [sys.executable, "-m", "ckpm_emulator", "run", "--arch", ARCH, f"--checks={checks}", "--"]
    done = subprocess.run(
        [*command, str(file), *arguments],
        cwd=EMULATOR,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return Verdict(exit_code=done.returncode, output=done.stdout)


def executable(configuration: Configuration) -> Path:
    """Build tile_example_fmha_fwd with the kernels of a configuration."""
    tree = trees.locate("aiter", cache=cache_folder())
    common = (*identity(), tree.identity, ARCH, *_DEFINITIONS)
    program = cache_of("example", *common, configuration.kernels) / "tile_example_fmha_fwd"
    if program.is_file():
        return program
    sources = _generate(tree, configuration.kernels, program.parent)
    return link(
        [_main(tree, common), *(_compile(tree, source, source.with_suffix(".o")) for source in sources)], program
    )


def _main(tree: Tree, common: tuple[str, ...]) -> Path:
    """Compile the program's main file, once for all configurations."""
    return _compile(tree, tree.fmha / "example_fmha_fwd.cpp", cache_of("example-main", *common) / "example_fmha_fwd.o")


def _compile(tree: Tree, source: Path, output: Path) -> Path:
    return compile_object(source, output, archs=[ARCH], includes=tree.includes, extra=_DEFINITIONS)


def _generate(tree: Tree, kernels: str, folder: Path) -> list[Path]:
    """Run upstream's codegen: write the instances of kernels and their dispatch."""
    options = ("--api", "fwd", "--receipt", "0", "--targets", ARCH, "--filter", f"fmha_fwd_{kernels}")
    command = [sys.executable, "-B", str(tree.fmha / "generate.py"), *options, "--output_dir", str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    sources = sorted(folder.rglob("*.cpp"))
    assert len(sources) > 1, f"upstream has no kernel {kernels}"
    return sources

"""ROCm's examples: compiled by the hipcc of a root file system from a clone in it, run on the emulated device.

Most verify their results. For the others, the table contains the results of their arithmetic.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from conformance.gtests import compile_program, judge, starter
from conformance.stored import Outcome

TABLE = Path(__file__).with_name("rocm_examples.yaml")
_BUILT = "built"  # a folder in the clone, with one for each arch


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """``source`` is a file of the clone, ``prints`` a text of a right run, ``module`` the module that it loads."""

    source: str
    flags: Sequence[str]
    prints: str
    module: str

    @property
    def name(self) -> str:
        """The path without the parts that all examples have."""
        return self.source.removesuffix(Path(self.source).suffix).removesuffix("/main")


def examples(arch: str, checks: str = "") -> tuple[Example, ...]:
    """The examples of an arch, under checks without large ones."""
    table = yaml.safe_load(TABLE.read_text())
    return tuple(
        Example(
            source=source,
            flags=tuple(group.get("flags", ())),
            prints=(row or {}).get("prints", table["prints"]),
            module=(row or {}).get("module", ""),
        )
        for group in table["groups"]
        if arch in group["archs"]
        for source, row in group["programs"].items()
        if not (checks and (row or {}).get("large"))
    )


def outcome(example: Example, args: argparse.Namespace, root: Path, clone: Path) -> Outcome:
    """Run an example by a suite's options, compiled first if needed."""
    arch = args.arch
    folder = clone / _BUILT / arch / example.name
    program = folder / "program"
    if not program.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        if example.module:
            module = clone / Path(example.source).parent / example.module
            _hipcc(root, "--genco", f"--offload-arch={arch}", module, "-o", folder / "module.co")
        _hipcc(root, *_flags(example, arch, clone), *example.flags, "-o", program)
    return verdict(example, starter(program, args, root, folder)([]))


def verdict(example: Example, text: str) -> Outcome:
    """The outcome of a run: passed if it prints the expected text and the emulator reports nothing."""
    return judge("OK" if example.prints in text else None, text)


def _flags(example: Example, arch: str, clone: Path) -> tuple[str | Path, ...]:
    source = clone / example.source
    includes = ("-I", clone / "Common", "-I", clone / "Tutorials/reduction/include", "-I", source.parent)
    return ("-std=c++17", "-O2", f"--offload-arch={arch}", *includes, "-x", "hip", source)


def _hipcc(root: Path, *arguments: str | Path) -> None:
    inside = [f"/{word.relative_to(root)}" if isinstance(word, Path) else word for word in arguments]
    command = [*(["chroot", str(root)] if root != Path("/") else []), "hipcc", *inside]
    compile_program(command, "an example", "name a root with hipcc")

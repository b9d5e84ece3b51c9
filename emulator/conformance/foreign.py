"""Tests of other projects' Python packages on the emulated device: started by a Python that has these packages.

A file of tests is run by one of the scripts beside this file, which take googletest's options and print as it does.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from conformance import gtests

HERE = Path(__file__).parent
_BUILT = "built"  # a folder in the clone, with one for each arch


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """``programs`` names the groups of tests, ``start`` makes the starter of one.

    ``never`` has tests that are not run, and why; ``large`` those that are not run under checks.
    """

    programs: Callable[[], Sequence[str]]
    start: Callable[[str, argparse.Namespace], gtests.Start]
    never: Mapping[str, str] = field(default_factory=dict)
    large: Mapping[str, str] = field(default_factory=dict)


def add_options(arguments: argparse.ArgumentParser) -> None:
    """Add the options of a suite whose tests are in a clone and need packages."""
    arguments.add_argument("--clone", type=Path, required=True, help="of the project's repository")
    arguments.add_argument("--python", type=Path, required=True, help="a Python with the project's packages")


def iree_groups() -> Mapping[str, Mapping[str, Sequence[str]]]:
    """IREE's files of tests by folder, with the options of the compiler."""
    groups = yaml.safe_load((HERE / "iree.yaml").read_text())["groups"]
    return {group["folder"]: group for group in groups}


def start_iree(name: str, args: argparse.Namespace) -> gtests.Start:
    """Compile a group of IREE's files if needed. Return its starter."""
    clone, group = args.clone.absolute(), iree_groups()[name]
    modules = clone / _BUILT / args.arch / name
    modules.mkdir(parents=True, exist_ok=True)
    target = ("--iree-hal-target-device=hip", f"--iree-rocm-target={args.arch}", *group.get("flags", ()))
    for file in group["files"]:
        if not (module := modules / f"{file}.vmfb").is_file():
            source, compiler = clone / name / f"{file}.mlir", args.python.with_name("iree-compile")
            gtests.compile_program(
                [compiler, source, *target, "-o", module], str(source), "install IREE's compiler there"
            )
    return _script("iree_tests.py", modules, args)


def _script(script: str, file: Path, args: argparse.Namespace) -> gtests.Start:
    start = gtests.starter(args.python.absolute(), args, args.root)
    return lambda arguments: start([str(HERE / script), str(file), *arguments])


def _of_clone(script: str, *names: str, **unrun: Mapping[str, str]) -> Suite:
    """Tests in files or folders of a clone."""

    def start(name: str, args: argparse.Namespace) -> gtests.Start:
        return _script(script, args.clone.absolute() / name, args)

    return Suite(programs=lambda: names, start=start, **unrun)


_IMAGES, _OF_CPU = "images, which tinygrad has on OpenCL alone", "kernels for the CPU, which clang compiles"


SUITES: Mapping[str, Suite] = {
    "iree": Suite(programs=lambda: list(iree_groups()), start=start_iree),
    "tinygrad": _of_clone(
        "tinygrad_tests.py",
        "test/test_tiny.py",
        never={
            **dict.fromkeys(("TestTiny.test_image", "TestTiny.test_beam_image"), _IMAGES),
            **dict.fromkeys(("TestTiny.test_const", "TestTiny.test_eye"), _OF_CPU),
        },
    ),
    "flydsl": _of_clone(
        "flydsl_tests.py",
        "examples",
        "examples/extension/coop",
        large={"examples.04-preshuffle_gemm": "more work than a device under all checks gets through"},
    ),
}

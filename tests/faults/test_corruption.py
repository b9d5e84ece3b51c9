"""Damages every kind of file that is kept between runs. The file is made again or reported, and never used.

CKPM_CORRUPTIONS is the number of damages (200). Each is drawn by the seed in the test's name. A library of one real
kernel is built, run and inspected with a cache of its own. After each damage, the steps that read the file run again.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ckpm.base.files import sha256_of
from ckpm.base.paths import PROJECT
from ckpm.base.settings import cache_folder
from ckpm.base.store import BESIDE
from ckpm.kernels.library.request import LIBRARY
from ckpm_emulator import toolchain
from tests.build.real_kernel import NAME
from tests.unit.base.test_store import damage

SEEDS = range(int(os.environ.get("CKPM_CORRUPTIONS", "200")))
OUTPUTS = Path("work/build/gfx950/aiter")
ARCH = ("--arch", "gfx950")
CASE = "plain.m64-full-q40k100"
STEPS: Mapping[str, tuple[str, ...]] = {
    "build": ("-m", "ckpm", "build", *ARCH, "--upstream", "aiter", "--toolchain", "embedded", "--filter", NAME),
    "run": ("-m", "ckpm", "test", "--suite", "sanitize", "--case", CASE, *ARCH, "--device", "emulator"),
    "jit": ("-m", "ckpm", "jit", NAME, *ARCH, "--toolchain", "embedded", "--device", "emulator"),
    "inspect": ("-m", "ckpm_emulator", "inspect", str(OUTPUTS.relative_to("work") / LIBRARY), *ARCH),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Globs of files to damage, files to delete to force a re-read, and the steps that read them.

    ``uncached`` is an output to remove from the cache.
    """

    files: str
    deleted: tuple[str, ...] = ()
    steps: tuple[str, ...]
    uncached: str = ""


KINDS: Mapping[str, Kind] = {
    "object": Kind(files="cache/objects/??/*", deleted=("work/build",), steps=("build",)),
    "decoded program": Kind(files="cache/emulator/programs/*", steps=("run",)),
    "inspection": Kind(files="cache/emulator/inspections/*", steps=("inspect",)),
    "core": Kind(files="cache/emulator/core-*/*", steps=("run",)),
    "header of CK": Kind(
        files="cache/upstream/*/**/*.hpp", deleted=("work/build",), uncached="obj/dispatch.o", steps=("build",)
    ),
    "library on demand": Kind(files="cache/jit/entries/*/*.*", steps=("jit",)),
    "key": Kind(files="cache/key", steps=("build",)),
    "output": Kind(files="work/build/**/*", steps=("build", "run", "inspect")),
}


@dataclass(frozen=True, slots=True)
class Run:
    """The outputs of a run by step, or its error. Outputs are hashes of compiled files, cases, or printed text."""

    code: int
    text: str
    outputs: Mapping[str, Any] = field(default_factory=dict)


def run(folder: Path, steps: Iterable[str] = STEPS) -> Run:
    """Run steps in ``folder``."""
    path = os.pathsep.join((str(PROJECT), str(PROJECT / "emulator")))
    environment = {**os.environ, "CKPM_CACHE": str(folder / "cache"), "PYTHONPATH": path}
    (folder / "work").mkdir(exist_ok=True)
    (folder / OUTPUTS / "sanitize.json").unlink(missing_ok=True)
    outputs: dict[str, Any] = {}
    for step in steps:
        done = subprocess.run(
            [sys.executable, "-P", *STEPS[step]], cwd=folder / "work", env=environment, capture_output=True, text=True
        )
        if done.returncode:
            return Run(done.returncode, done.stdout + done.stderr)
        outputs[step] = output_of(step, folder, done.stdout)
    return Run(0, "", outputs)


def output_of(step: str, folder: Path, printed: str) -> Any:
    """The part of an output that must be the same after a damage."""
    match step:
        case "build":
            return sha256_of(folder / OUTPUTS / LIBRARY)
        case "jit":
            (library,) = (folder / "cache/jit/entries").glob(f"*/{LIBRARY}")
            return sha256_of(library)
        case "run":
            cases = json.loads((folder / OUTPUTS / "sanitize.json").read_text())["cases"]
            return [{key: value for key, value in case.items() if key != "seconds"} for case in cases]
    return printed


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    """A folder after one run of all steps, and the run. Files that take minutes are copied from the user's cache."""
    folder = tmp_path_factory.mktemp("kept")
    (folder / "cache").mkdir(mode=0o700)
    for name in ("upstream", "zig", "objects"):
        if (cache_folder() / name).is_dir():
            shutil.copytree(cache_folder() / name, folder / "cache" / name, symlinks=True)
    copy_core(folder / "cache/emulator")
    first = run(folder)
    assert first.code == 0, first.text
    delete_unused_objects(folder)
    return folder, first


def delete_unused_objects(folder: Path) -> None:
    """Delete the objects of other libraries, as no step reads them."""
    used = {sha256_of(file) for file in (folder / OUTPUTS / LIBRARY, *folder.glob(f"{OUTPUTS}/obj/*.o"))}
    for file in folder.glob("cache/objects/??/*"):
        if file.suffix != BESIDE and sha256_of(file) not in used:
            file.unlink()
            file.with_name(file.name + BESIDE).unlink(missing_ok=True)


def copy_core(emulator: Path) -> None:
    """Copy the core of this checkout; share the folder that it is linked in, so that a damaged core takes seconds."""
    core = toolchain.library()
    shutil.copytree(core.parent, emulator / core.parent.name, symlinks=True)
    (emulator / "build").symlink_to(core.parents[1] / "build")


def delete(folder: Path, pattern: str) -> None:
    for path in sorted(folder.glob(pattern)):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def prepare(folder: Path, kind: Kind) -> None:
    """Delete the files that must be made again. dispatch.o is host code, which compiles in a third of the time."""
    if kind.uncached:
        output = sha256_of(folder / OUTPUTS / kind.uncached)
        cached = [file for file in folder.glob("cache/objects/??/*") if sha256_of(file) == output]
        assert cached
        for file in cached:
            file.unlink()
    for pattern in kind.deleted:
        delete(folder, pattern)


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_file_is_made_again_or_reported(seed: int, finished: tuple[Path, Run]) -> None:
    folder, undisturbed = finished
    name, kind = list(KINDS.items())[seed % len(KINDS)]
    files = sorted(file for file in folder.glob(kind.files) if file.is_file() and file.stat().st_size)
    assert files, f"no {name}"
    victim = random.Random(seed).choice(files)
    whole = victim.read_bytes()
    prepare(folder, kind)
    victim.parent.mkdir(parents=True, exist_ok=True)
    victim.write_bytes(damage(whole, seed))
    again = run(folder, kind.steps)
    if again.code:
        victim.write_bytes(whole)
        assert again.code in range(2, 125), again.text
        assert "Traceback" not in again.text
        assert victim.name in again.text or "doctor" in again.text, again.text
        again = run(folder, kind.steps)
    assert (again.code, again.outputs) == (0, {step: undisturbed.outputs[step] for step in kind.steps}), again.text

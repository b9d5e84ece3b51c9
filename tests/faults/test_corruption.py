"""Every kind of file that is kept between runs damaged in turn: made again, or named, and never used.

CKPM_CORRUPTIONS says how many (200); each is drawn by its seed, which is in the test's name. A library of one real
kernel is built, run and inspected with a cache of its own; after each damage the steps that use the damaged file are
done again.
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
from ckpm.base.settings import cache_folder
from ckpm.base.store import BESIDE
from ckpm.kernels.library.request import LIBRARY, PROJECT
from ckpm_emulator import toolchain
from tests.build.real_kernel import NAME
from tests.emulator.test_emulator_store import damaged

SEEDS = range(int(os.environ.get("CKPM_CORRUPTIONS", "200")))
OUTPUTS = Path("work/build/gfx950/aiter")
ARCH = ("--arch", "gfx950")
CASE = "plain.m64-full-q40k100"
SMALL = "import sys, pathlib, tests.fuzz.compiled as compiled; compiled.prepare_code(pathlib.Path(sys.argv[1]))"
STEPS: Mapping[str, tuple[str, ...]] = {
    "small": ("-c", SMALL, "small"),  # code for GPUs that compiles in a second
    "build": ("-m", "ckpm.kernels", "build", *ARCH, "--upstream", "aiter", "--toolchain", "embedded", "--filter", NAME),
    "run": (
        "-m",
        "ckpm.suites",
        "--suite",
        "sanitize",
        "--case",
        "plain.m64-full-q40k100",
        *ARCH,
        "--device",
        "emulator",
    ),
    "jit": ("-m", "ckpm.attention", "jit", NAME, *ARCH, "--toolchain", "embedded", "--device", "emulator"),
    "inspect": ("-m", "ckpm_emulator", "inspect", str(OUTPUTS.relative_to("work") / LIBRARY), *ARCH),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What is damaged and what is deleted so that it is needed, as globs in the folder of a run, and what uses it.

    ``uncached`` is an output that is made again and not taken from the cache.
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
    "launcher": Kind(files="cache/launchers/*/*", deleted=("work/small",), steps=("small",)),
    "header of CK": Kind(
        files="cache/upstream/*/**/*.hpp", deleted=("work/build",), uncached="obj/dispatch.o", steps=("build",)
    ),
    "library on demand": Kind(files="cache/jit/entries/*/*.*", steps=("jit",)),
    "key": Kind(files="cache/key", steps=("build",)),
    "output": Kind(files="work/build/**/*", steps=("build", "run", "inspect")),
}
LINKED = Kind(files="cache/zig/o/*/lib*", deleted=("work/build",), uncached=LIBRARY, steps=("build",))  # a minute each
EVERY = 40  # of the seeds, one is LINKED


@dataclass(frozen=True, slots=True)
class Said:
    """What a run made, or why it ended. ``made`` is by step: sha256 of what was compiled, cases, the inspection."""

    code: int
    words: str
    made: Mapping[str, Any] = field(default_factory=dict)


def run(folder: Path, steps: Iterable[str] = STEPS) -> Said:
    """Do steps in ``folder``, one after the other."""
    environment = {**os.environ, "CKPM_CACHE": str(folder / "cache"), "PYTHONPATH": str(PROJECT)}
    (folder / "work").mkdir(exist_ok=True)
    (folder / OUTPUTS / "sanitize.json").unlink(missing_ok=True)
    made: dict[str, Any] = {}
    for step in steps:
        if step == "small":
            shutil.rmtree(folder / "work" / "small", ignore_errors=True)
        done = subprocess.run(
            [sys.executable, "-P", *STEPS[step]], cwd=folder / "work", env=environment, capture_output=True, text=True
        )
        if done.returncode:
            return Said(done.returncode, done.stdout + done.stderr)
        made[step] = made_by(step, folder, done.stdout)
    return Said(0, "", made)


def made_by(step: str, folder: Path, printed: str) -> Any:
    """What must be the same whatever was damaged."""
    match step:
        case "small":
            return sha256_of(folder / "work" / "small" / "library.o")
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
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Said]:
    """A folder in which all was made once, with what came of it. What takes minutes is copied from the user's cache."""
    folder = tmp_path_factory.mktemp("kept")
    (folder / "cache").mkdir(mode=0o700)
    for name in ("upstream", "zig", "objects"):
        if (cache_folder() / name).is_dir():
            shutil.copytree(cache_folder() / name, folder / "cache" / name, symlinks=True)
    copy_core(folder / "cache/emulator")
    said = run(folder)
    assert said.code == 0, said.words
    delete_unused_objects(folder)
    return folder, said


def delete_unused_objects(folder: Path) -> None:
    """Of other libraries: to damage those would show nothing."""
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


@pytest.fixture(scope="module")
def linked(place: tuple[Path, Said]) -> None:
    """zig's cache holds what a link needs, and nothing else: it is made again, which takes a minute."""
    folder, _ = place
    delete(folder, "cache/zig")
    prepare(folder, LINKED)
    said = run(folder, LINKED.steps)
    assert said.code == 0, said.words


def delete(folder: Path, pattern: str) -> None:
    for found in sorted(folder.glob(pattern)):
        shutil.rmtree(found) if found.is_dir() else found.unlink()


def prepare(folder: Path, kind: Kind) -> None:
    """Delete what must be made again. The sources of dispatch.o are the host's: they compile in a third of the time."""
    if kind.uncached:
        output = sha256_of(folder / OUTPUTS / kind.uncached)
        cached = [file for file in folder.glob("cache/objects/??/*") if sha256_of(file) == output]
        assert cached
        for file in cached:
            file.unlink()
    for pattern in kind.deleted:
        delete(folder, pattern)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_damaged_is_made_again_or_named(
    seed: int, place: tuple[Path, Said], request: pytest.FixtureRequest
) -> None:
    folder, undisturbed = place
    name, kind = list(KINDS.items())[seed % len(KINDS)]
    if seed % EVERY == EVERY - 1:
        request.getfixturevalue("linked")
        name, kind = "library of zig", LINKED
    files = sorted(file for file in folder.glob(kind.files) if file.is_file() and file.stat().st_size)
    assert files, f"no {name}"
    victim = random.Random(seed).choice(files)
    whole = victim.read_bytes()
    prepare(folder, kind)
    victim.parent.mkdir(parents=True, exist_ok=True)
    victim.write_bytes(damaged(whole, seed))
    said = run(folder, kind.steps)
    if said.code:
        victim.write_bytes(whole)
        assert said.code in range(2, 125), said.words
        assert "Traceback" not in said.words
        assert victim.name in said.words or "doctor" in said.words, said.words
        said = run(folder, kind.steps)
    assert (said.code, said.made) == (0, {step: undisturbed.made[step] for step in kind.steps}), said.words

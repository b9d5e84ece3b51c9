"""Every kind of file that is kept between runs damaged in turn: made again, or named, and never used.

CKPM_CORRUPTIONS says how many (200); each is drawn by its seed, which is in the test's name. A library of one real
kernel is built, run and inspected with a cache of its own, before and after each damage.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kernels.base.settings import cache_folder
from kernels.build.request import LIBRARY, PROJECT
from matrix.base.files import sha256_of
from tests.build.real_kernel import NAME
from tests.emulator.test_emulator_store import damaged

SEEDS = range(int(os.environ.get("CKPM_CORRUPTIONS", "200")))
OUTPUTS = Path("work/build/gfx950/aiter")
# What is damaged, as globs in the folder of a run, and what is deleted so that it is needed.
KINDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "object": ("cache/objects/??/*", ("work/build",)),
    "decoded program": ("cache/emulator/programs/*", ("work/build",)),
    "inspection": ("cache/emulator/inspections/*", ("work/build",)),
    "core": ("cache/emulator/core-*/*", ("work/build",)),
    "object of the core": ("cache/emulator/objects/*", ("cache/emulator/core-*",)),
    "launcher": ("cache/launchers/*/*", ("work/build", "cache/objects")),
    "header of CK": ("cache/upstream/*/**/*.hpp", ("work/build", "cache/objects")),
    "key": ("cache/key", ()),
    "output": ("work/build/**/*", ()),
}
LINKED = ("cache/zig/o/*/lib*", ("work/build", "cache/objects"))  # libc++ is made again: a minute each
EVERY = 40  # of the seeds, one is LINKED


@dataclass(frozen=True, slots=True)
class Said:
    """What a run made, or why it ended. ``made`` is the library's sha256, the cases' results and the inspection."""

    code: int
    words: str
    made: Mapping[str, Any] = field(default_factory=dict)


def run(folder: Path) -> Said:
    """Build, run and inspect in ``folder``."""
    library = OUTPUTS.relative_to("work") / LIBRARY
    arch = ("--arch", "gfx950")
    steps = (
        ("kernels", "build", *arch, "--upstream", "aiter", "--toolchain", "embedded", "--filter", NAME),
        ("tests.gpu", "--suite", "sanitize", "--case", "plain.m64-full-q40k100", *arch, "--device", "emulator"),
        ("emulator", "inspect", str(library), *arch),
    )
    environment = {**os.environ, "CKPM_CACHE": str(folder / "cache"), "PYTHONPATH": str(PROJECT)}
    (folder / "work").mkdir(exist_ok=True)
    for words in steps:
        done = subprocess.run(
            [sys.executable, "-P", "-m", *words], cwd=folder / "work", env=environment, capture_output=True, text=True
        )
        if done.returncode:
            return Said(done.returncode, done.stdout + done.stderr)
    results = json.loads((folder / OUTPUTS / "sanitize.json").read_text())["cases"]
    made = {
        "library": sha256_of(folder / OUTPUTS / LIBRARY),
        "results": [{key: value for key, value in case.items() if key != "seconds"} for case in results],
        "inspection": done.stdout,
    }
    return Said(0, "", made)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Said]:
    """A folder in which all was made once, with what came of it. CK's package is taken from the user's cache."""
    folder = tmp_path_factory.mktemp("kept")
    if (cache_folder() / "upstream").is_dir():
        (folder / "cache").mkdir(mode=0o700)
        shutil.copytree(cache_folder() / "upstream", folder / "cache" / "upstream", symlinks=True)
    said = run(folder)
    assert said.code == 0, said.words
    return folder, said


def delete(folder: Path, pattern: str) -> None:
    for found in sorted(folder.glob(pattern)):
        shutil.rmtree(found) if found.is_dir() else found.unlink()


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_damaged_is_made_again_or_named(seed: int, place: tuple[Path, Said]) -> None:
    folder, undisturbed = place
    kind = list(KINDS)[seed % len(KINDS)]
    pattern, deleted = LINKED if seed % EVERY == EVERY - 1 else KINDS[kind]
    files = sorted(file for file in folder.glob(pattern) if file.is_file() and file.stat().st_size)
    assert files, f"no {kind}"
    victim = random.Random(seed).choice(files)
    whole = victim.read_bytes()
    for other in deleted:
        delete(folder, other)
    victim.write_bytes(damaged(whole, seed))
    said = run(folder)
    if said.code:
        victim.write_bytes(whole)
        assert said.code in range(2, 125), said.words
        assert "Traceback" not in said.words
        assert victim.name in said.words or "doctor" in said.words, said.words
        said = run(folder)
    assert (said.code, said.made) == (0, undisturbed.made), said.words

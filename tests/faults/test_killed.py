"""Kills commands at random moments and runs them again: the same result, no draft and no process is left.

CKPM_KILLS is the number of moments (50). Each is drawn by the seed in the test's name.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ckpm.base.files import abandoned_drafts
from ckpm.base.store import DRAFTS, is_adopted
from ckpm.commands import main
from ckpm.kernels.code.toolchains import Toolchain
from ckpm.kernels.library import building
from ckpm.kernels.library.request import LIBRARY, BuildRequest
from tests.faults import killing
from tests.unit.reports.release import samples

SEEDS = range(int(os.environ.get("CKPM_KILLS", "50")))
Make = Callable[..., BuildRequest]
Outcome = Mapping[str, bytes]  # the content of each file that must be the same


class Work:
    """An action to kill: ``act`` runs it in a folder, ``outcome`` reads the files that it wrote."""

    def __init__(self, act: Callable[[Path], object], outcome: Callable[[Path], Outcome]) -> None:
        self.act, self.outcome = act, outcome


def contents(folder: Path, *patterns: str) -> dict[str, bytes]:
    files = (file for pattern in patterns for file in folder.glob(pattern))
    return {str(file.relative_to(folder)): file.read_bytes() for file in files if file.is_file()}


@pytest.fixture
def build(stub_toolchain: Callable[..., Toolchain], request_for: Make, copied_manifest: None) -> Work:
    """A build of three units by the stub compiler, with the object cache in the same folder."""
    toolchain = stub_toolchain()

    def request(folder: Path) -> BuildRequest:
        build_request = request_for(toolchain, str(folder / "work"), where=("key.logits", "key.lse"))
        object.__setattr__(build_request, "object_cache", folder / "objects")
        return build_request

    def act(folder: Path) -> None:
        building.run(request(folder), jobs=2)

    def outcome(folder: Path) -> Outcome:
        build_request = request(folder)
        built = build_request.work / build_request.folder
        cached = [file for file in (folder / "objects").glob("??/*") if file.suffix != ".sha256"]
        assert all(is_adopted(file) for file in cached)
        assert not list((folder / "objects" / DRAFTS).iterdir())
        assert not [file for below in (built, built / "src", built / "obj") for file in abandoned_drafts(below)]
        assert not [*built.rglob("*.tmp"), *built.rglob("*.failure.json"), *(built / "tmp").iterdir()]
        return contents(built, "src/*.hip", "obj/*", LIBRARY)

    return Work(act, outcome)


@pytest.fixture
def bundle() -> Work:
    def outcome(folder: Path) -> Outcome:
        assert not list((folder / "release").glob(".*"))
        return contents(folder, "release/**/*")

    return Work(lambda folder: samples.make_bundle(folder), outcome)


@pytest.fixture
def suite(built: Path) -> Work:
    """A case of one real kernel on the emulator. Its results differ only in the seconds."""

    def act(folder: Path) -> None:
        options = ["--arch", "gfx950", "--device", "emulator", "--library", str(built / LIBRARY)]
        case = ["--suite", "sanitize", "--case", "plain.m64-full-q40k100"]
        assert main(["test", *options, *case, "--output", str(folder / "results.json")]) == 0

    def outcome(folder: Path) -> Outcome:
        from ckpm.base.results import Results

        rows = Results.read(folder / "results.json").cases
        return {row.name: row.outcome.encode() for row in rows}

    return Work(act, outcome)


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, tuple[Outcome, float]]:
    """The outcome and the seconds of each kind of work that was done once."""
    return {}


@pytest.mark.parametrize("seed", SEEDS)
def test_killed_action_run_again_gives_same_files(
    seed: int, request: pytest.FixtureRequest, tmp_path: Path, undisturbed: dict[str, tuple[Outcome, float]]
) -> None:
    kind = ("build", "bundle", "suite")[seed % 3]
    work: Work = request.getfixturevalue(kind)
    if kind not in undisturbed:
        (first := tmp_path / "first").mkdir()
        ending = killing.run(lambda: work.act(first))
        undisturbed[kind] = (work.outcome(first), ending.seconds)
        assert undisturbed[kind][0]
        shutil.rmtree(first)
    expected, seconds = undisturbed[kind]
    (folder := tmp_path / "folder").mkdir()
    killing.run(lambda: work.act(folder), random.Random(seed).random() * seconds)
    killing.run(lambda: work.act(folder))
    assert work.outcome(folder) == expected

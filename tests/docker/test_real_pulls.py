"""Pulls by real engines from registries of this test: what each behaviour ends in, and how often it was asked."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpm.docker.building import identity
from ckpm.docker.engines import Engine, detect
from ckpm.docker.errors import DigestError, EngineMissingError, PullError
from ckpm.docker.images import Base, image
from ckpm.docker.pulling import MIRRORS, pull
from tests.docker.registry import Registry, configuration, registry

ROOT = Path(__file__).parents[2]
ABSENT = f"sha256:{'0' * 64}"


@pytest.fixture(params=["podman", "buildah"])
def engine(request: pytest.FixtureRequest) -> Engine:
    try:
        return detect(request.param)
    except EngineMissingError as error:
        pytest.skip(f"the registries of an engine that is not here: {error}")


@pytest.fixture
def lone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registries.conf of its own for the engine; without a registry in it so far."""
    file = configuration(tmp_path / "registries.conf")
    monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(file))
    monkeypatch.delenv(MIRRORS, raising=False)
    return file


@pytest.fixture
def pulled(engine: Engine) -> Iterator[list[str]]:
    """References that the test pulled, which are removed at its end."""
    references: list[str] = []
    yield references
    for reference in references:
        subprocess.run([engine.program, "rmi", reference], capture_output=True, check=False)


def base(digest: str) -> Base:
    return dataclasses.replace(image("rocm-7.2-test").base, reference="test/base:1", digest=digest)


def manifests(server: Registry) -> list[str]:
    return [path for path in server.asked if "/manifests/" in path]


def test_a_registry_that_is_away_is_asked_four_times_then_the_mirror_that_has_it(
    engine: Engine, lone: Path, pulled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    with registry("away") as away, registry("whole") as mirror:
        configuration(lone, away, mirror, search=away)
        monkeypatch.setenv(MIRRORS, mirror.address)
        pulled.append(pull(engine, base(mirror.digest), say=lambda text: None, sleep=pauses.append))
    assert pulled == [f"{mirror.address}/test/base@{mirror.digest}"]
    assert identity(engine, pulled[0])
    assert pauses == [2.0, 4.0, 8.0]


def test_registry_and_mirror_away_is_a_failure_of_infrastructure(
    engine: Engine, lone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    with registry("away") as away:
        configuration(lone, away, search=away)
        monkeypatch.setenv(MIRRORS, away.address)
        with pytest.raises(PullError, match=r"503.*\(4 times\)") as caught:
            pull(engine, base(ABSENT), say=lambda text: None, sleep=pauses.append)
    assert caught.value.infrastructure
    assert pauses == [2.0, 4.0, 8.0] * 2


def unexpected(seconds: float) -> None:
    pytest.fail(f"a pause of {seconds} s: it is tried again")


@pytest.mark.parametrize("behaviour", ["whole", "lying", "damaged"])
def test_a_digest_that_is_not_there_or_not_of_what_was_sent_is_asked_for_once(
    engine: Engine, lone: Path, behaviour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registry(behaviour) as first, registry("whole") as mirror:
        configuration(lone, first, mirror, search=first)
        monkeypatch.setenv(MIRRORS, mirror.address)
        wanted = first.digest if behaviour == "damaged" else ABSENT
        with pytest.raises(DigestError):
            pull(engine, base(wanted), say=lambda text: None, sleep=unexpected)
        assert manifests(first) == [f"/v2/test/base/manifests/{wanted}"]
        assert mirror.asked == []


def test_an_engine_that_knows_no_registry_is_not_asked_twice(engine: Engine, lone: Path) -> None:
    with pytest.raises(PullError, match="unqualified-search-registries"):
        pull(engine, base(ABSENT), say=lambda text: None, sleep=unexpected)


def test_the_command_ends_with_its_exit_code_and_records_what_a_workflow_tries_again(
    engine: Engine, lone: Path, tmp_path: Path
) -> None:
    record = tmp_path / "failures"
    words = ["--image", "rocm-7.2-test", "--once", "--engine", engine.name, "--work", str(tmp_path / "work")]
    run = subprocess.run(
        [sys.executable, "-m", "ckpm.kernels", "images", "build", *words],
        cwd=ROOT,
        env={**os.environ, "CKPM_FAILURES": str(record)},
        capture_output=True,
        text=True,
    )
    assert (run.returncode, "error: infrastructure: base image rocm-7.2 could not be pulled" in run.stderr) == (
        102,
        True,
    ), run.stderr
    assert '"infrastructure": true' in record.read_text()

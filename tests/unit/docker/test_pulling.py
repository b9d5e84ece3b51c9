"""Pulls are tried again with growing pauses, then at mirrors; what can't be mended by that ends at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckpm.base.errors import CkPrefillError, DiskFullError
from ckpm.docker.engines import Engine
from ckpm.docker.errors import DigestError, EngineMissingError, EnginePermissionError, PullError
from ckpm.docker.images import image
from ckpm.docker.pulling import MIRRORS, places, pull
from tests.unit.docker.fake_engine import Answer, FakeEngine

BASE = image("rocm-7.2-test").base
TIMEOUT: Answer = (1, "", "Error: dial tcp: i/o timeout")
ABSENT: Answer = (1, "", "Error: no such image")


@pytest.fixture(autouse=True)
def no_mirrors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MIRRORS, raising=False)


class Pulls:
    """A fake docker whose pulls end as told, and the pauses that were made."""

    def __init__(self, folder: Path, answers: list[Answer], there: Answer = ABSENT) -> None:
        self.fake = FakeEngine(folder, "docker", {"pull": answers, "image inspect": [there]})
        self.pauses: list[float] = []

    def run(self) -> str:
        engine = Engine("docker", str(self.fake.program))
        return pull(engine, BASE, say=lambda text: None, sleep=self.pauses.append)

    @property
    def references(self) -> list[str]:
        return [call[1] for call in self.fake.calls("pull")]


def test_a_pull_is_by_digest_and_not_by_tag(tmp_path: Path) -> None:
    pulls = Pulls(tmp_path, [(0, "", "")])
    assert pulls.run() == f"rocm/dev-ubuntu-24.04@{BASE.digest}"
    assert pulls.references == [f"rocm/dev-ubuntu-24.04@{BASE.digest}"]
    assert pulls.pauses == []


def test_an_image_that_is_there_is_not_pulled(tmp_path: Path) -> None:
    pulls = Pulls(tmp_path, [TIMEOUT], there=(0, "sha256:abc", ""))
    assert pulls.run() == places(BASE)[0]
    assert pulls.references == []


def test_a_pull_that_fails_twice_is_tried_a_third_time_after_longer_pauses(tmp_path: Path) -> None:
    pulls = Pulls(tmp_path, [TIMEOUT, TIMEOUT, (0, "", "")])
    assert pulls.run() == places(BASE)[0]
    assert len(pulls.references) == 3
    assert pulls.pauses == [2.0, 4.0]


def test_mirrors_come_after_the_registry_and_then_it_is_infrastructure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MIRRORS, "one.example/hub/, two.example")
    pulls = Pulls(tmp_path, [TIMEOUT])
    with pytest.raises(PullError, match=r"^infrastructure: ") as caught:
        pulls.run()
    assert (caught.value.exit_code, caught.value.infrastructure) == (102, True)
    places = ["", "one.example/hub/", "two.example/"]  # the first: whatever the engine is configured for
    expected = [f"{place}rocm/dev-ubuntu-24.04@{BASE.digest}" for place in places for _ in range(4)]
    assert pulls.references == expected
    assert pulls.pauses == [2.0, 4.0, 8.0] * 3
    assert all(f"{place}rocm/dev-ubuntu-24.04" in str(caught.value) for place in places)
    assert "i/o timeout (4 times)" in str(caught.value)


def test_a_mirror_that_has_it_is_where_it_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MIRRORS, "one.example")
    pulls = Pulls(tmp_path, [TIMEOUT] * 4 + [(0, "", "")])
    assert pulls.run() == f"one.example/rocm/dev-ubuntu-24.04@{BASE.digest}"


@pytest.mark.parametrize(
    "complaint",
    [
        "unauthorized: authentication required",
        'Error: short-name "a/b" did not resolve to an alias and no unqualified-search registries are defined',
    ],
)
def test_a_place_that_will_never_have_it_is_not_asked_again_but_a_mirror_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complaint: str
) -> None:
    monkeypatch.setenv(MIRRORS, "one.example")
    pulls = Pulls(tmp_path, [(1, "", complaint), (0, "", "")])
    assert pulls.run().startswith("one.example/")
    assert len(pulls.references) == 2
    assert pulls.pauses == []


@pytest.mark.parametrize(
    "complaint",
    [
        "Error response from daemon: manifest for rocm/dev-ubuntu-24.04@sha256:9 not found: manifest unknown",
        "Error: initializing source: reading manifest sha256:9 in rocm/dev-ubuntu-24.04: manifest unknown",
        "Error: writing blob: Digest did not match, expected sha256:9, got sha256:8",
        "Error: determining manifest MIME type: Manifest does not match provided manifest digest sha256:9",
        "Error: parsing image configuration: Download config.json digest sha256:8 does not match expected sha256:9",
        "failed commit on ref: unexpected commit digest sha256:8, expected sha256:9: failed precondition",
    ],
)
def test_a_wrong_digest_is_never_tried_again_nor_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complaint: str
) -> None:
    monkeypatch.setenv(MIRRORS, "one.example")
    pulls = Pulls(tmp_path, [(1, "", complaint)])
    with pytest.raises(DigestError, match=r"docker/images\.yaml") as caught:
        pulls.run()
    assert (caught.value.exit_code, caught.value.infrastructure) == (103, False)
    assert len(pulls.references) == 1
    assert pulls.pauses == []


@pytest.mark.parametrize(
    ("complaint", "kind", "code"),
    [
        ("write /var/lib/docker/tmp/x: no space left on device", DiskFullError, 27),
        ("permission denied while trying to connect to the Docker daemon socket", EnginePermissionError, 101),
        ("Error: potentially insufficient UIDs or GIDs available in user namespace", EnginePermissionError, 101),
        ("Cannot connect to the Docker daemon. Is the docker daemon running?", EngineMissingError, 100),
    ],
)
def test_an_engine_that_cant_is_its_own_failure_at_once(
    tmp_path: Path, complaint: str, kind: type[CkPrefillError], code: int
) -> None:
    pulls = Pulls(tmp_path, [(1, "", complaint)])
    with pytest.raises(kind) as caught:
        pulls.run()
    assert caught.value.exit_code == code
    assert len(pulls.references) == 1

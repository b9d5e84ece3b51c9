"""Pulls by real engines from registries of this test, one for each behaviour."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ckpm.base.errors import ServiceError, SetupError, TrustError
from ckpm.docker.building import identity, pull
from ckpm.docker.engines import Engine
from ckpm.docker.images import Base, image
from tests.docker.registry import Registry, configuration, registry
from tests.docker.test_refusals import engine as engine

ABSENT = f"sha256:{'0' * 64}"


@pytest.fixture
def lone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registries.conf for the engine, without a registry."""
    file = configuration(tmp_path / "registries.conf")
    monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(file))
    return file


@pytest.fixture
def pulled(engine: Engine) -> Iterator[list[str]]:
    """References that the test pulled. They are removed at its end."""
    references: list[str] = []
    yield references
    for reference in references:
        subprocess.run([engine.program, "rmi", reference], capture_output=True, check=False)


def base(digest: str) -> Base:
    return msgspec.structs.replace(image("rocm-7.2-test").base, reference="test/base:1", digest=digest)


def manifests(server: Registry) -> list[str]:
    return [path for path in server.requests if "/manifests/" in path]


def test_pull_gets_image_by_digest(engine: Engine, lone: Path, pulled: list[str]) -> None:
    with registry("whole") as server:
        configuration(lone, server, search=server)
        pulled.append(pull(engine, base(server.digest)))
    assert pulled == [f"test/base@{server.digest}"]
    assert identity(engine, pulled[0])


def test_pull_from_absent_registry_is_infrastructure(engine: Engine, lone: Path) -> None:
    with registry("away") as away:
        configuration(lone, away, search=away)
        with pytest.raises(ServiceError, match="503") as caught:
            pull(engine, base(ABSENT))
    assert caught.value.infrastructure


@pytest.mark.parametrize("behaviour", ["whole", "lying", "damaged"])
def test_pull_of_wrong_digest_fails(engine: Engine, lone: Path, behaviour: str) -> None:
    with registry(behaviour) as server:
        configuration(lone, server, search=server)
        wanted = server.digest if behaviour == "damaged" else ABSENT
        with pytest.raises(TrustError):
            pull(engine, base(wanted))
        assert manifests(server) == [f"/v2/test/base/manifests/{wanted}"]


def test_pull_without_registry_names_setting(engine: Engine, lone: Path) -> None:
    with pytest.raises(SetupError, match="CKPM_REGISTRY=HOST"):
        pull(engine, base(ABSENT))


def test_pull_takes_registry_of_environment(
    engine: Engine, lone: Path, pulled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with registry("whole") as server:
        configuration(lone, server)
        monkeypatch.setenv("CKPM_REGISTRY", server.address)
        pulled.append(pull(engine, base(server.digest)))
    assert pulled == [f"{server.address}/test/base@{server.digest}"]

"""Builds and pulls on an engine that answers from a list: comparisons, failures and remaining files."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from ckpm.base.errors import (
    CheckFailedError,
    CkPrefillError,
    CompileError,
    DiskFullError,
    ServiceError,
    SetupError,
    TrustError,
    UsageError,
)
from ckpm.commands import parse
from ckpm.docker import building, command, context, rootfs
from ckpm.docker.context import ImageSources, Labels
from ckpm.docker.engines import Engine
from ckpm.docker.images import image, images
from tests.unit.docker.fake_engine import Answer, FakeEngine

ONE = image("debian-emulator")
PACKAGES: Answer = (0, "apt 3.3.3\npython3 3.14.6-1", "")


@pytest.fixture(autouse=True)
def no_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bootstrap nothing, and do not read the settings of apt."""
    monkeypatch.setenv(rootfs.MIRROR, "http://mirror.example/debian")
    monkeypatch.setattr(
        rootfs, "make", lambda base, file: (file.parent.mkdir(parents=True, exist_ok=True), file.touch())
    )


class Docker:
    """A fake docker with the ``ids`` of the images it builds, one after the other."""

    def __init__(
        self, folder: Path, *, ids: tuple[str, ...] = ("aa",), answers: dict[str, list[Answer]] | None = None
    ) -> None:
        output = {
            "build": [(0, "", "")],
            "image inspect": [(0, f"sha256:{identity}", "") for identity in ids],
            "run": [PACKAGES],
        }
        self.fake = FakeEngine(folder, "docker", {**output, **(answers or {})})
        self.engine = Engine("docker", str(self.fake.program))
        self.work = folder / "work"
        self.sources = ImageSources(folder / "cache", labels=Labels(revision="abc"))

    def build(self) -> building.BuiltImage:
        return building.build(self.engine, ONE, self.work, self.sources)

    def prove(self) -> None:
        building.prove(self.engine, ONE, self.build(), self.work, self.sources)


def test_build_returns_packages_and_removes_secrets(tmp_path: Path) -> None:
    docker = Docker(tmp_path)
    built = docker.build()
    assert (built.identity, built.tag) == ("aa", context.tag(ONE))
    assert built.packages == {"apt": "3.3.3", "python3": "3.14.6-1"}
    (arguments,) = docker.fake.calls("build")
    files = [Path(argument.partition("src=")[2]) for argument in arguments if argument.startswith("id=")]
    assert [file.name for file in files] == ["apt.conf", "sources.list"]
    assert not any(file.exists() for file in files)
    text = (docker.work / ONE.name / "context" / "Dockerfile").read_text()
    assert 'image.revision="abc"' in text


def test_second_build_has_no_cache_and_same_id(tmp_path: Path) -> None:
    docker = Docker(tmp_path)
    docker.prove()
    first, second = docker.fake.calls("build")
    assert "--no-cache" not in first
    assert "--no-cache" in second
    assert docker.fake.calls("rmi") == [["rmi", f"{context.tag(ONE)}-again"]]


def test_second_build_with_another_id_names_packages(tmp_path: Path) -> None:
    docker = Docker(tmp_path, ids=("aa", "bb"), answers={"run": [PACKAGES, (0, "apt 3.3.4\npython3 3.14.6-1", "")]})
    with pytest.raises(CheckFailedError, match=r"is bb, the first aa; packages differ: apt 3\.3\.3 ->"):
        docker.prove()


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("E: Unable to locate package hipcc", CompileError),
        ("write /x: no space left on device", DiskFullError),
        ("dial unix /var/run/docker.sock: connect: permission denied", SetupError),
    ],
)
def test_failing_build_is_classified(tmp_path: Path, message: str, kind: type[CkPrefillError]) -> None:
    docker = Docker(tmp_path, answers={"build": [(1, "", message)]})
    with pytest.raises(kind, match=message.rpartition(": ")[2]):
        docker.build()
    assert message in (docker.work / ONE.name / "build.log").read_text()


@pytest.mark.parametrize("present", [True, False])
def test_missing_image_alone_is_built(tmp_path: Path, present: bool) -> None:
    missing = {"image inspect": [(1, "", "no such image"), (0, "sha256:aa", "")]}
    docker = Docker(tmp_path, answers={} if present else missing)
    assert building.ensure(docker.engine, ONE, docker.work, docker.sources) == context.tag(ONE)
    assert len(docker.fake.calls("build")) == (0 if present else 1)


def test_builds_of_two_clones_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their tags are equal, and one engine has them: a clone removed or replaced what the other compared."""
    docker, files = Docker(tmp_path), list[Path]()

    def hold(file: Path, otherwise: str) -> contextlib.AbstractContextManager[None]:
        files.append(file)
        return contextlib.nullcontext()

    monkeypatch.setattr(building, "hold_lock", hold)
    for clone in ("a", "b"):
        building.ensure(docker.engine, ONE, tmp_path / clone / "build/docker", docker.sources)
    building.ensure(docker.engine, image("debian-rocm-test"), docker.work, docker.sources)
    assert (files[0] == files[1], files[0] == files[2]) == (True, False)


BASE = image("rocm-7.2-test").base
REFERENCE = f"rocm/dev-ubuntu-24.04@{BASE.digest}"
ABSENT: Answer = (1, "", "Error: no such image")


@pytest.mark.parametrize(("registry", "present"), [("", False), ("registry.example:5000/mirror/", False), ("", True)])
def test_absent_base_is_pulled_by_digest_and_not_by_tag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registry: str, present: bool
) -> None:
    """The registry of the environment is a prefix of the reference."""
    monkeypatch.setenv("CKPM_REGISTRY", registry)
    docker = Docker(tmp_path, answers={} if present else {"pull": [(0, "", "")], "image inspect": [ABSENT]})
    assert building.pull(docker.engine, BASE) == f"{registry}{REFERENCE}"
    assert docker.fake.calls("pull") == ([] if present else [["pull", f"{registry}{REFERENCE}"]])


@pytest.mark.parametrize(
    ("complaint", "kind", "code"),
    [
        ("Error: dial tcp: i/o timeout", ServiceError, 12),
        ("unauthorized: authentication required", SetupError, 4),
        (
            'Error: short-name "a/b" did not resolve to an alias and no unqualified-search registries are defined',
            SetupError,
            4,
        ),
        ("toomanyrequests: You have reached your unauthenticated pull rate limit", ServiceError, 12),
        ("Error response from daemon: manifest for rocm/dev@sha256:9 not found: manifest unknown", TrustError, 11),
        ("Error: initializing source: reading manifest sha256:9 in rocm/dev: manifest unknown", TrustError, 11),
        ("Error: writing blob: Digest did not match, expected sha256:9, got sha256:8", TrustError, 11),
        ("Error: determining manifest MIME type: Manifest does not match provided manifest digest", TrustError, 11),
        ("Error: Download config.json digest sha256:8 does not match expected sha256:9", TrustError, 11),
        ("failed commit on ref: unexpected commit digest sha256:8: failed precondition", TrustError, 11),
        ("write /var/lib/docker/tmp/x: no space left on device", DiskFullError, 10),
        ("permission denied while trying to connect to the Docker daemon socket", SetupError, 4),
        ("Error: potentially insufficient UIDs or GIDs available in user namespace", SetupError, 4),
        ("Cannot connect to the Docker daemon. Is the docker daemon running?", SetupError, 4),
    ],
)
def test_failing_pull_is_classified(tmp_path: Path, complaint: str, kind: type[CkPrefillError], code: int) -> None:
    docker = Docker(tmp_path, answers={"pull": [(1, "", complaint)], "image inspect": [ABSENT]})
    with pytest.raises(kind) as caught:
        building.pull(docker.engine, BASE)
    assert (caught.value.exit_code, caught.value.infrastructure) == (code, code == 12)
    assert ("docker/images.yaml" in str(caught.value)) == (code == 11)
    assert str(caught.value).startswith("infrastructure: ") == (code == 12)
    assert len(docker.fake.calls("pull")) == 1


def built(**packages: str) -> building.BuiltImage:
    return building.BuiltImage(image="i", tag="t", identity="aa", packages=packages)


def test_lock_covers_all_images_of_base(tmp_path: Path) -> None:
    building.write_lock(ONE.base, [built(apt="1"), built(apt="1", hipcc="7")], tmp_path)
    assert building.read_lock(ONE.base, tmp_path) == {"apt": "1", "hipcc": "7"}
    building.check_lock(ONE.base, built(apt="1"), tmp_path)  # an image may have fewer


@pytest.mark.parametrize(
    ("packages", "named"),
    [({"apt": "2"}, "1 packages differ: apt 1 -> 2"), ({"apt": "1", "gcc": "3"}, "1 packages differ: gcc none -> 3")],
)
def test_packages_that_differ_from_lock_are_named(tmp_path: Path, packages: dict[str, str], named: str) -> None:
    building.write_lock(ONE.base, [built(apt="1")], tmp_path)
    with pytest.raises(CheckFailedError, match=named):
        building.check_lock(ONE.base, built(**packages), tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["list", "--locked"], "--locked goes with images build"),
        (["lint", "--once"], "--once goes with images build"),
        (["render", "--update-locks"], "--update-locks goes with images build"),
        (["build", "--locked", "--image", "REGISTRY"], "docker/locks has no packages of"),
    ],
)
def test_options_that_do_not_fit_are_refused_first(options: list[str], message: str) -> None:
    """Without an engine: a build, or the search for an engine, would raise another error."""
    other = next(image.name for image in images().values() if not image.is_local)
    with pytest.raises(UsageError, match=message):
        command.run(parse(["images", *(other if option == "REGISTRY" else option for option in options)]))


def test_command_builds_every_local_image_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    docker = Docker(tmp_path, answers={"info": [(0, "28 []", "")]})
    monkeypatch.setenv("PATH", str(docker.fake.program.parent))
    monkeypatch.setenv("CKPM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(context, "fetch_archive", lambda package, archive: archive.write_bytes(b""))
    args = parse(["images", "build", "--work", str(docker.work)])
    assert command.run(args) == 0
    assert len(docker.fake.calls("build")) == 6
    printed = capsys.readouterr().out
    for name in ("debian-emulator", "debian-rocm-build", "debian-rocm-test"):
        assert f"{name}: sha256:aa, " in printed
        assert f"{name}: the same image id again from nothing, " in printed
    assert "warning: image debian-emulator: 1 packages differ: python3 " in printed
    with pytest.raises(CheckFailedError):
        command.run(parse(["images", "build", "--work", str(docker.work), "--locked"]))

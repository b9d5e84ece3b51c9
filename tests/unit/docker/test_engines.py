"""The choice of an engine, and the command lines of each engine."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpm.base.errors import SetupError, UsageError
from ckpm.docker.engines import (
    ContainerRun,
    Engine,
    ImageBuild,
    Mount,
    build_command,
    detect,
    device_groups,
    identity_command,
    present,
    run_commands,
)
from tests.unit.docker.fake_engine import Answer, FakeEngine

NO_DAEMON: Answer = (1, "", "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is it running?")
NO_PERMISSION: Answer = (1, "", "permission denied while trying to connect to the Docker daemon socket")


Engines = Callable[..., None]


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engines:
    """``engines(docker=ANSWER)``: the only programs in PATH, with their answers to `info`."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    def install(**answers: Answer) -> None:
        for name, answer in answers.items():
            FakeEngine(tmp_path, name, {"info": [answer]})

    return install


@pytest.mark.parametrize(
    ("docker", "other"),
    [
        (NO_DAEMON, {"podman": "4.3.1 "}),
        ((0, " []", "Cannot connect to the Docker daemon"), {"buildah": "false"}),  # without a version
        (NO_PERMISSION, {"buildah": "false"}),
    ],
)
def test_unusable_docker_is_passed_over(engines: Engines, docker: Answer, other: dict[str, str]) -> None:
    ((name, answer),) = other.items()
    engines(docker=docker, **{name: (0, answer, "")})
    assert detect().name == name


def test_working_docker_comes_first(engines: Engines) -> None:
    engines(docker=(0, "28.2.2 [name=seccomp,profile=builtin]", ""), podman=(0, "4.3.1 ", ""))
    assert detect() == Engine("docker", detect().program, rootless=False)


@pytest.mark.parametrize(
    ("name", "answer"), [("docker", "28.2.2 [name=rootless]"), ("podman", "4.3.1 rootless"), ("buildah", "true")]
)
def test_rootless_engine_is_detected(engines: Engines, name: str, answer: str) -> None:
    engines(**{name: (0, answer, "")})
    assert detect(name).rootless


@pytest.mark.parametrize(
    ("answers", "chosen", "parts"),
    [
        ({"docker": NO_DAEMON}, None,
         ("docker: Cannot connect", "podman: not installed", "buildah: not installed", "apt-get install")),
        ({"docker": NO_PERMISSION}, None, ("Join the engine's group",)),
        ({"docker": NO_DAEMON, "podman": (0, "4.3.1 ", "")}, "docker", ()),
    ],
)  # fmt: skip
def test_no_usable_engine_fails_with_reasons_and_remedy(
    engines: Engines, answers: dict[str, Answer], chosen: str | None, parts: tuple[str, ...]
) -> None:
    engines(**answers)
    with pytest.raises(SetupError) as caught:
        detect(*([chosen] if chosen else []))
    assert [part for part in parts if part not in str(caught.value)] == []


BUILD = ImageBuild(
    context=Path("/c"), tag="t:1", epoch=7, arguments={"REVISION": "abc"}, secrets={"apt.conf": Path("/s")}
)


@pytest.mark.parametrize("name", ["podman", "buildah"])
def test_oci_build_has_fixed_times_and_format(name: str) -> None:
    command = build_command(Engine(name, name), BUILD)
    text = " ".join(command)
    assert f"{name} build --tag t:1 --isolation chroot --format oci --layers --timestamp 7 " in text
    assert "--build-arg SOURCE_DATE_EPOCH=7 --build-arg REVISION=abc --secret id=apt.conf,src=/s" in text
    assert command[-1] == "/c"
    assert "--no-cache" not in command


@pytest.mark.parametrize(
    ("name", "user", "private"), [("buildah", 0, True), ("podman", 1000, False), ("docker", 0, False)]
)
def test_mounts_of_build_by_root_are_private(
    monkeypatch: pytest.MonkeyPatch, name: str, user: int, private: bool
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: user)
    command = build_command(Engine(name, name), BUILD)
    assert command[: command.index(name)] == (["unshare", "--mount", "--propagation", "private"] if private else [])


def test_docker_build_rewrites_times() -> None:
    command = build_command(Engine("docker", "docker"), BUILD)
    assert "type=docker,rewrite-timestamp=true" in command
    assert "--build-arg SOURCE_DATE_EPOCH=7" in " ".join(command)
    assert not {"--isolation", "--timestamp", "--layers"} & set(command)


@pytest.mark.parametrize("name", ["docker", "podman", "buildah"])
def test_second_build_uses_no_cache(name: str) -> None:
    fresh = ImageBuild(context=Path("/c"), tag="t", epoch=7, cached=False)
    assert "--no-cache" in build_command(Engine(name, name), fresh)


RUN = ContainerRun(
    image="i:1",
    command=["nox", "-l"],
    user="1000:1001",
    workdir=Path("/r"),
    mounts=[
        Mount(source=Path("/r"), target=Path("/r"), writable=True, own=True),
        Mount(source=Path("/a"), target=Path("/b")),
    ],
    environment={"HOME": "/h"},
    devices=["/dev/kfd"],
    groups=[109],
    shm_size="16g",
)


def test_docker_runs_as_caller_with_mounts_and_gpu() -> None:
    commands, cleanup = run_commands(Engine("docker", "docker"), RUN, "n")
    assert [" ".join(command) for command in commands] == [
        "docker run --rm --name n --sig-proxy=false --stop-timeout 0 --network host --user 1000:1001 "
        "--device /dev/kfd --group-add 109 --shm-size 16g "
        "--volume /r:/r:rw,z --volume /a:/b:ro --env HOME=/h --workdir /r i:1 nox -l"
    ]
    assert cleanup == ["docker", "rm", "--force", "n"]


def test_rootless_docker_runs_as_its_root() -> None:
    (command,), _ = run_commands(Engine("docker", "docker", rootless=True), RUN, "n")
    assert command[command.index("--user") + 1] == "0:0"


def test_podman_run_has_limits_and_rootless_keeps_ids() -> None:
    (command,), _ = run_commands(Engine("podman", "podman"), RUN, "n")
    limits = [word for before, word in itertools.pairwise(command) if before == "--ulimit"]
    assert sorted(limit.partition("=")[0] for limit in limits) == ["nofile", "nproc"]
    assert "--userns" not in command
    (command,), _ = run_commands(Engine("podman", "podman", rootless=True), RUN, "n")
    text = " ".join(command)
    assert "--userns keep-id --user 1000:1001" in text
    assert "--group-add keep-groups" in text


def test_buildah_makes_runs_and_removes_container() -> None:
    (start, command), cleanup = run_commands(Engine("buildah", "buildah"), RUN, "n")
    assert start == ["buildah", "from", "--pull=never", "--name", "n", "--shm-size", "16g", "i:1"]
    text = " ".join(command)
    assert text.startswith("buildah run --isolation chroot --user 1000:1001 --volume /dev/kfd:/dev/kfd ")
    assert text.endswith("--volume /r:/r:rw,z --volume /a:/b:ro --env HOME=/h --workingdir /r n -- nox -l")
    assert cleanup == ["buildah", "rm", "n"]
    (_, command), _ = run_commands(Engine("buildah", "buildah", rootless=True), RUN, "n")
    assert command[command.index("--user") + 1] == "0:0"


def test_mount_of_path_with_colon_is_refused() -> None:
    with pytest.raises(UsageError, match=r"/a:b: a folder with ':' in its name can't be mounted in a container\. Move"):
        str(Mount(source=Path("/a:b"), target=Path("/b")))


def test_identity_command_of_each_engine() -> None:
    assert identity_command(Engine("podman", "p"), "t") == ["p", "image", "inspect", "--format", "{{.Id}}", "t"]
    assert identity_command(Engine("buildah", "b"), "t")[:4] == ["b", "inspect", "--type", "image"]


def test_devices_are_passed_all_or_none_with_groups(tmp_path: Path) -> None:
    kfd, dri = tmp_path / "kfd", tmp_path / "dri"
    kfd.touch()
    assert present([str(kfd), str(dri)]) == ()
    dri.mkdir()
    (dri / "renderD128").touch()
    assert present([str(kfd), str(dri)]) == (str(kfd), str(dri))
    assert device_groups([str(kfd), str(dri)]) == (kfd.stat().st_gid,)
    assert present([]) == ()

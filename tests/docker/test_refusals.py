"""Real engines and mmdebstrap without space, a socket, a home folder or ids.

Root is needed to mount a small file system and to start an engine as another user.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
import socket
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpm.base.errors import DiskFullError, SetupError
from ckpm.docker import rootfs
from ckpm.docker.building import build
from ckpm.docker.context import ImageSources
from ckpm.docker.engines import Engine, detect
from ckpm.docker.images import Image, image

OTHER_USER = 65534
ONE = image("debian-emulator")

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="mounting and changing the user need root")


@pytest.fixture(params=["podman", "buildah"])
def engine(request: pytest.FixtureRequest) -> Engine:
    try:
        return detect(request.param)
    except SetupError as error:
        pytest.skip(f"the engine does not work here: {error}")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--recursive", str(folder)], check=True)


@pytest.fixture
def large_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Image, ImageSources]:
    """An image whose root file system is one file of 40 MB that another user owns."""
    large = tmp_path / "large"
    large.write_bytes(bytes(40 << 20))
    kept = tmp_path / "rootfs.tar"
    with tarfile.open(kept, "w") as archive:
        member = archive.gettarinfo(large, "large")
        member.uid = member.gid = 10001
        with large.open("rb") as stream:
            archive.addfile(member, stream)
    large.unlink()
    monkeypatch.setattr(rootfs, "kept", lambda base, folder: kept)
    return ONE, ImageSources(tmp_path / "cache")


def built(large_image: tuple[Image, ImageSources], engine: Engine, work: Path) -> None:
    build(engine, large_image[0], work, large_image[1])


def test_build_folder_on_full_disk_fails(engine: Engine, large_image: tuple[Image, ImageSources], small: Path) -> None:
    with pytest.raises(DiskFullError, match="no space left on the disk") as caught:
        built(large_image, engine, small / "work")
    assert caught.value.exit_code == 10


def test_engine_storage_on_full_disk_fails(
    engine: Engine,
    large_image: tuple[Image, ImageSources],
    small: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    conf = tmp_path / "storage.conf"
    places = f'graphroot = "{small}/store"\nrunroot = "{small}/run"\n'
    conf.write_text(f'[storage]\ndriver = "vfs"\n{places}')
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(conf))
    with pytest.raises(DiskFullError, match=r"the engine's storage is full: .*no space left on device") as caught:
        built(large_image, engine, tmp_path / "work")
    assert (caught.value.exit_code, len(str(caught.value)) < 1000) == (10, True)


def test_bootstrap_on_full_disk_fails(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(small))
    with pytest.raises(DiskFullError, match="no space left on the disk for base debian-forky"):
        rootfs.make(ONE.base, small / "forky.tar")
    assert list(small.iterdir()) == []


@pytest.fixture
def somebody(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The only engine in PATH, started as a user without rights in a folder that the user can read."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / engine.name
    command = ["setpriv", f"--reuid={OTHER_USER}", f"--regid={OTHER_USER}", "--clear-groups", engine.program]
    program.write_text(f'#!/bin/sh\nPATH={shlex.quote(os.environ["PATH"])} exec {shlex.join(command)} "$@"\n')
    program.chmod(0o755)
    for above in (tmp_path, *tmp_path.parents):
        if above.stat().st_uid == 0 and not above.stat().st_mode & 0o001:
            above.chmod(above.stat().st_mode | 0o011)
    monkeypatch.chdir(tmp_path)  # a clone in another user's home can't be entered
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    return dataclasses.replace(engine, program=str(program), rootless=True)


def test_home_without_write_permission_fails(somebody: Engine) -> None:
    with pytest.raises(SetupError, match=r"permission denied.*a home folder that it can write to") as caught:
        detect(somebody.name)
    assert caught.value.exit_code == 4


def test_user_without_subordinate_ids_fails(
    somebody: Engine, large_image: tuple[Image, ImageSources], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, OTHER_USER, OTHER_USER)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(rootfs, "secrets", lambda base, folder: {})  # the other user can't read this process's files
    with pytest.raises(SetupError, match="/etc/subuid") as caught:
        built(large_image, somebody, tmp_path / "work")
    assert caught.value.exit_code == 4


def test_socket_without_permission_fails(somebody: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if somebody.name != "podman":
        pytest.skip("buildah has no daemon and no socket")
    path = tmp_path / "engine.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        path.chmod(0o600)
        monkeypatch.setenv("CONTAINER_HOST", f"unix://{path}")
        with pytest.raises(SetupError, match="permission denied"):
            detect("podman")

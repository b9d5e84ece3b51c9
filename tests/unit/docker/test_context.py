"""What goes into a build: root file system, CK's package or a commit of a checkout, labels, and nothing private."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpm.base.errors import DiskFullError, NotACkTreeError
from ckpm.docker import context, rootfs
from ckpm.docker.context import Sources
from ckpm.docker.dockerfile import Labels
from ckpm.docker.errors import RootFilesystemError
from ckpm.docker.images import Image, image
from ckpm.matrix.dialects import PackagedUpstream, check_upstream

FORKY = image("debian-emulator").base


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    return subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A small rocm-libraries: its first commit has CK, its second changed it and is checked out."""
    folder = tmp_path / "clone"
    for name in ("include/ck_tile/core.hpp", "example/ck_tile/01_fmha/generate.py", "test/big.cpp"):
        file = folder / "projects/composablekernel" / name
        file.parent.mkdir(parents=True)
        file.write_text("first")
    git(folder.parent, "init", "-q", str(folder))
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    (folder / "projects/composablekernel/include/ck_tile/core.hpp").write_text("second")
    git(folder, "commit", "-qam", "second")
    return folder


def with_commit(commit: str) -> Image:
    """An image of a registry: nothing is bootstrapped for it."""
    return dataclasses.replace(image("rocm-10.0-build"), ck=commit)


def test_a_checkout_is_exported_at_its_pinned_commit_whatever_is_checked_out(tmp_path: Path, clone: Path) -> None:
    pinned = git(clone, "rev-parse", "HEAD~1").strip()
    folder = tmp_path / "image" / "context"
    context.fill(with_commit(pinned), folder, Sources(cache=tmp_path, ck_root=clone))
    assert (folder / "ck/include/ck_tile/core.hpp").read_text() == "first"
    assert (folder / "ck/example/ck_tile/01_fmha/generate.py").is_file()
    assert not (folder / "ck/test").exists()
    assert "COPY ck/" in (folder / "Dockerfile").read_text()


def test_a_checkout_that_lacks_the_commit_or_was_not_given(tmp_path: Path, clone: Path) -> None:
    one = with_commit("0" * 40)
    with pytest.raises(NotACkTreeError, match=f"git -C {clone} fetch origin {'0' * 40}"):
        context.fill(one, tmp_path / "a" / "context", Sources(cache=tmp_path, ck_root=clone))
    with pytest.raises(NotACkTreeError, match="--ck-root or CK_ROOT"):
        context.fill(one, tmp_path / "a" / "context", Sources(cache=tmp_path))


def test_the_package_is_fetched_once_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []

    def fetch(package: PackagedUpstream, archive: Path, say: object) -> None:
        fetched.append(package.file)
        archive.write_bytes(b"wheel")

    monkeypatch.setattr(context, "fetch_archive", fetch)
    for name in ("rocm-7.2-build", "rocm-7.2-test"):
        folder = tmp_path / name / "context"
        context.fill(image(name), folder, Sources(cache=tmp_path))
        assert [file.read_bytes() for file in (folder / "packages").iterdir()] == [b"wheel"]
    assert fetched == ["amd_aiter-0.1.7.post2.dev18-py3-none-any.whl"]


def test_the_tag_changes_with_what_is_in_the_image_and_with_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    one = image("debian-emulator")
    assert context.tag(one) == context.tag(one)
    more = {**one.base.packages, "emulator": (*one.base.packages["emulator"], "git")}
    other = dataclasses.replace(one, base=dataclasses.replace(one.base, packages=more))
    assert context.tag(other) != context.tag(one)
    built = image("debian-rocm-build")
    before = context.tag(built)
    assert context.tag(dataclasses.replace(built, ck="flash-attn")) != before
    bumped = dataclasses.replace(check_upstream("aiter"), sha256="0" * 64)
    monkeypatch.setattr(context, "check_upstream", lambda name: bumped)
    assert context.tag(built) != before


@pytest.mark.parametrize(
    ("origin", "source"),
    [
        ("https://git.example/a/b", "https://git.example/a/b"),
        ("https://someone:secret@git.example/a/b", "https://git.example/a/b"),
        ("/somewhere/else", None),
        (None, None),
    ],
)
def test_labels_name_origin_and_commit_without_credentials(clone: Path, origin: str | None, source: str | None) -> None:
    if origin:
        git(clone, "remote", "add", "origin", origin)
    commit = git(clone, "rev-parse", "HEAD").strip()
    assert context.labels(clone) == (Labels(source, commit) if source else Labels(revision=commit))
    (clone / "projects/composablekernel/test/big.cpp").write_text("third")
    assert context.labels(clone).revision == f"{commit}-changed"


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``apt(**programs)``: shell scripts that are all there is in PATH."""
    monkeypatch.delenv(rootfs.MIRROR, raising=False)
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def install(**programs: str) -> None:
        for name, script in programs.items():
            program = folder / name.replace("_", "-")
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)

    return install


CONFIG = r"""echo 'APT::Architecture "amd64";
Acquire::http::Proxy "http://someone:secret@proxy:3128";
Acquire::http::Proxy-Auto-Detect "/usr/bin/detect";
Acquire::Check-Valid-Until "false";
Acquire::https "";'"""


def test_mirror_and_proxy_are_those_of_this_machines_apt(apt: Callable[..., None], tmp_path: Path) -> None:
    apt(apt_get="echo http://mirror.example/debian/; echo http://other.example/", apt_config=CONFIG)
    files = rootfs.secrets(FORKY, tmp_path / "private")
    source = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://mirror.example/debian/ forky main\n"
    assert files["sources.list"].read_text() == source
    assert files["apt.conf"].read_text().splitlines() == [
        'Acquire::http::Proxy "http://someone:secret@proxy:3128";',
        'Acquire::Check-Valid-Until "false";',
        'Dir::Etc::SourceList "/run/secrets/sources.list";',
        'Dir::Etc::SourceParts "-";',
    ]
    assert {file.stat().st_mode & 0o777 for file in files.values()} == {0o600}


def test_an_image_of_a_registry_keeps_its_own_sources(apt: Callable[..., None], tmp_path: Path) -> None:
    apt(apt_config=CONFIG)
    files = rootfs.secrets(image("rocm-7.2-test").base, tmp_path / "private")
    assert files["sources.list"].read_text() == ""
    assert "SourceList" not in files["apt.conf"].read_text()


def test_a_mirror_can_be_given(apt: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    apt()
    with pytest.raises(RootFilesystemError, match=r"set CKPM_DEBIAN_MIRROR to a URL") as caught:
        rootfs.mirror()
    assert caught.value.exit_code == 108
    monkeypatch.setenv(rootfs.MIRROR, "http://snapshot.example/20261030")
    assert rootfs.mirror() == "http://snapshot.example/20261030"


MMDEBSTRAP = 'for word; do case $word in *.tar.*) echo "$SOURCE_DATE_EPOCH $*" > "$word";; esac; done'


def test_a_base_is_made_once_with_its_time_and_without_this_machines_settings(
    apt: Callable[..., None], tmp_path: Path
) -> None:
    apt(apt_get="echo http://mirror.example/debian", apt_config=CONFIG, mmdebstrap=MMDEBSTRAP)
    file = rootfs.kept(FORKY, tmp_path / "kept")
    text = file.read_text()
    assert text.startswith(f"{FORKY.epoch} ")
    for name in ("etc/apt/sources.list", "etc/apt/apt.conf.d/99mmdebstrap", "etc/hostname", "etc/resolv.conf"):
        assert f'"$1/{name}"' in text
    apt(mmdebstrap="exit 1")
    assert rootfs.kept(FORKY, tmp_path / "kept") == file
    assert list(file.parent.iterdir()) == [file]  # no configuration with a password stays


@pytest.mark.parametrize(
    ("script", "kind", "message"),
    [
        (None, RootFilesystemError, "apt-get install mmdebstrap"),
        ("echo 'E: mirror is down' >&2; exit 1", RootFilesystemError, "E: mirror is down"),
        ("echo 'tar: No space left on device' >&2; exit 1", DiskFullError, "no space left"),
    ],
)
def test_a_base_that_cant_be_made(
    apt: Callable[..., None], tmp_path: Path, script: str | None, kind: type[Exception], message: str
) -> None:
    apt(apt_get="echo http://mirror.example/debian", apt_config=CONFIG)
    if script:
        apt(mmdebstrap=script)
    with pytest.raises(kind, match=message):
        rootfs.make(FORKY, tmp_path / "kept" / "forky.tar")
    assert not list((tmp_path / "kept").iterdir()) if (tmp_path / "kept").exists() else True


def test_a_repository_around_an_installed_ckpm_is_not_its_source(clone: Path) -> None:
    assert context.labels(clone / "projects") == Labels()

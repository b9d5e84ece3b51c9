"""Inputs of a build: Dockerfile, root file system, CK's package and labels, without anything private."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ckpm.base.errors import CheckFailedError, CompileError, DiskFullError
from ckpm.docker import context, rootfs
from ckpm.docker.context import ImageSources, Labels
from ckpm.docker.images import Image, image, images
from ckpm.matrix.dialects import PackagedUpstream, check_upstream
from tests.unit.shared import git

FORKY = image("debian-emulator").base
ALL = pytest.mark.parametrize("image", images().values(), ids=lambda image: image.name)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with one file in a folder."""
    folder = tmp_path / "clone"
    (folder / "inside").mkdir(parents=True)
    (folder / "inside" / "file").write_text("first")
    git(folder.parent, "init", "-q", str(folder))
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    return folder


def test_package_is_fetched_once_for_each_pinned_sha256(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []

    def fetch(package: PackagedUpstream, archive: Path) -> None:
        fetched.append(package.file)
        archive.write_bytes(b"wheel")

    monkeypatch.setattr(context, "fetch_archive", fetch)
    for name in ("rocm-7.2-build", "rocm-7.2-test"):
        folder = tmp_path / name / "context"
        context.fill(image(name), folder, ImageSources(cache=tmp_path))
        assert [file.read_bytes() for file in (folder / "packages").iterdir()] == [b"wheel"]
    assert fetched == ["amd_aiter-0.1.7.post2.dev18-py3-none-any.whl"]
    other = msgspec.structs.replace(check_upstream("aiter"), sha256="0" * 64)
    monkeypatch.setattr(context, "check_upstream", lambda _: other)
    context.fill(image("rocm-7.2-build"), tmp_path / "context", ImageSources(cache=tmp_path))
    assert len(fetched) == 2


def test_tag_changes_with_content_of_image(monkeypatch: pytest.MonkeyPatch) -> None:
    debian = image("debian-emulator")
    assert context.tag(debian) == context.tag(debian)
    more = {**debian.base.packages, "emulator": (*debian.base.packages["emulator"], "git")}
    for change in ({"packages": more}, {"epoch": debian.base.epoch + 1}):
        other = dataclasses.replace(debian, base=msgspec.structs.replace(debian.base, **change))
        assert context.tag(other) != context.tag(debian)
    built = image("debian-rocm-build")
    before = context.tag(built)
    assert context.tag(dataclasses.replace(built, ck="flash-attn")) != before
    bumped = msgspec.structs.replace(check_upstream("aiter"), sha256="0" * 64)
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
def test_labels_have_origin_and_commit_without_credentials(clone: Path, origin: str | None, source: str | None) -> None:
    if origin:
        git(clone, "remote", "add", "origin", origin)
    commit = git(clone, "rev-parse", "HEAD").strip()
    assert context.labels(clone) == (Labels(source, commit) if source else Labels(revision=commit))
    (clone / "inside" / "file").write_text("second")
    assert context.labels(clone).revision == f"{commit}-changed"


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``apt(**programs)``: shell scripts, the only programs in PATH."""
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


def test_secrets_have_mirror_and_proxy_of_this_machine(apt: Callable[..., None], tmp_path: Path) -> None:
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


def test_registry_image_keeps_its_own_sources(apt: Callable[..., None], tmp_path: Path) -> None:
    apt(apt_config=CONFIG)
    files = rootfs.secrets(image("rocm-7.2-test").base, tmp_path / "private")
    assert files["sources.list"].read_text() == ""
    assert "SourceList" not in files["apt.conf"].read_text()


def test_mirror_from_environment(apt: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    apt()
    with pytest.raises(CompileError, match=r"set CKPM_DEBIAN_MIRROR to a URL"):
        rootfs.mirror()
    monkeypatch.setenv(rootfs.MIRROR, "http://snapshot.example/20261030")
    assert rootfs.mirror() == "http://snapshot.example/20261030"


MMDEBSTRAP = 'for word; do case $word in *.tar.*) echo "$SOURCE_DATE_EPOCH $*" > "$word";; esac; done'


def test_base_is_made_once_without_settings_of_this_machine(apt: Callable[..., None], tmp_path: Path) -> None:
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
        (None, CompileError, "apt-get install mmdebstrap"),
        ("echo 'E: mirror is down' >&2; exit 1", CompileError, "E: mirror is down"),
        ("echo 'tar: No space left on device' >&2; exit 1", DiskFullError, "no space left"),
    ],
)
def test_failing_base_is_reported_and_leaves_no_file(
    apt: Callable[..., None], tmp_path: Path, script: str | None, kind: type[Exception], message: str
) -> None:
    apt(apt_get="echo http://mirror.example/debian", apt_config=CONFIG)
    if script:
        apt(mmdebstrap=script)
    with pytest.raises(kind, match=message):
        rootfs.make(FORKY, tmp_path / "kept" / "forky.tar")
    assert not list((tmp_path / "kept").iterdir()) if (tmp_path / "kept").exists() else True


def test_labels_of_installed_ckpm_are_unknown(clone: Path) -> None:
    assert context.labels(clone / "inside") == Labels()


def instructions(text: str) -> list[list[str]]:
    """Words of each instruction, without comments and with continued lines joined."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    return [line.split() for line in lines.replace("\\\n", " ").splitlines() if line.strip()]


@ALL
def test_last_user_is_not_root_and_runs_nothing(image: Image) -> None:
    lines = instructions(context.render(image))
    users = [at for at, line in enumerate(lines) if line[0] == "USER"]
    assert lines[users[-1]][1] == "10001:10001"
    assert not [line for line in lines[users[-1] :] if line[0] in ("RUN", "COPY", "ADD")]


@ALL
def test_apt_uses_secrets_only(image: Image) -> None:
    text = context.render(image)
    installs = [line for line in text.replace("\\\n", " ").splitlines() if "apt-get" in line]
    assert len(installs) == len(image.layers) > 0
    for line in installs:
        assert "--mount=type=secret,id=apt.conf" in line
        assert "--mount=type=secret,id=sources.list" in line
        assert "rm -rf /var/lib/apt/lists/* /var/cache/* /var/log/*" in line
    assert "://" not in text  # no mirror, no registry, no index


@ALL
def test_dockerfile_has_labels_healthcheck_and_packages(image: Image) -> None:
    lines = instructions(context.render(image, context.Labels("https://git.example/a", "abc")))
    labels = " ".join(next(line for line in lines if line[0] == "LABEL"))
    assert 'org.opencontainers.image.revision="abc"' in labels
    assert 'org.opencontainers.image.source="https://git.example/a"' in labels
    assert [line for line in lines if line[0] == "HEALTHCHECK"]
    installed = {word for line in lines if line[0] == "RUN" for word in line}
    assert {package for layer in image.layers for package in layer} <= installed


def test_both_bases_come_from_one_template() -> None:
    debian, amd = (instructions(context.render(image(name))) for name in ("debian-rocm-test", "rocm-7.2-test"))
    assert debian[:2] == [["FROM", "scratch"], ["ADD", "rootfs.tar", "/"]]
    assert amd[0][1].startswith("BASE=rocm/dev-ubuntu-24.04:7.2.4-complete@sha256:")
    assert amd[1] == ["FROM", "${BASE}"]
    assert ["COPY", "packages/", "/opt/ckpm/packages/"] in debian
    assert ["COPY", "packages/", "/opt/ckpm/packages/"] in amd


def test_hadolint_accepts_every_dockerfile(tmp_path: Path) -> None:
    context.lint([context.write(image, tmp_path) for image in images().values()])


def test_hadolint_refuses_mistake(tmp_path: Path) -> None:
    file = context.write(image("debian-emulator"), tmp_path)
    text = file.read_text()
    file.write_text(
        re.sub(r"USER \d+:\d+\nHEALTHCHECK", "USER root\nHEALTHCHECK", text).replace("FROM scratch", "FROM x")
    )
    with pytest.raises(CheckFailedError, match="DL3002"):
        context.lint([file])

"""Rendered Dockerfiles have a pinned base, no mirror or secret in a layer, an ordinary user and labels."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from ckpm.base.errors import CheckFailedError
from ckpm.docker import context
from ckpm.docker.images import Image, image, images

ALL = pytest.mark.parametrize("one", images().values(), ids=lambda one: one.name)


def instructions(text: str) -> list[list[str]]:
    """Words of each instruction, without comments and with continued lines joined."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    return [line.split() for line in lines.replace("\\\n", " ").splitlines() if line.strip()]


@ALL
def test_last_user_is_not_root_and_runs_nothing(one: Image) -> None:
    words = instructions(context.render(one))
    users = [at for at, word in enumerate(words) if word[0] == "USER"]
    assert words[users[-1]][1] == "10001:10001"
    assert not [word for word in words[users[-1] :] if word[0] in ("RUN", "COPY", "ADD")]


@ALL
def test_apt_uses_secrets_only(one: Image) -> None:
    text = context.render(one)
    installs = [line for line in text.replace("\\\n", " ").splitlines() if "apt-get" in line]
    assert len(installs) == len(one.layers) > 0
    for line in installs:
        assert "--mount=type=secret,id=apt.conf" in line
        assert "--mount=type=secret,id=sources.list" in line
        assert "rm -rf /var/lib/apt/lists/* /var/cache/* /var/log/*" in line
    assert "://" not in text  # no mirror, no registry, no index


@ALL
def test_dockerfile_has_labels_healthcheck_and_packages(one: Image) -> None:
    words = instructions(context.render(one, context.Labels("https://git.example/a", "abc")))
    labels = " ".join(next(word for word in words if word[0] == "LABEL"))
    assert 'org.opencontainers.image.revision="abc"' in labels
    assert 'org.opencontainers.image.source="https://git.example/a"' in labels
    assert [word for word in words if word[0] == "HEALTHCHECK"]
    installed = {word for line in words if line[0] == "RUN" for word in line}
    assert {package for layer in one.layers for package in layer} <= installed


def test_both_bases_come_from_one_template() -> None:
    debian, amd = (instructions(context.render(image(name))) for name in ("debian-rocm-test", "rocm-7.2-test"))
    assert debian[:2] == [["FROM", "scratch"], ["ADD", "rootfs.tar", "/"]]
    assert amd[0][1].startswith("BASE=rocm/dev-ubuntu-24.04:7.2.4-complete@sha256:")
    assert amd[1] == ["FROM", "${BASE}"]
    assert ["COPY", "packages/", "/opt/ckpm/packages/"] in debian
    assert ["COPY", "packages/", "/opt/ckpm/packages/"] in amd


def test_hadolint_accepts_every_dockerfile(tmp_path: Path) -> None:
    context.lint([context.write(one, tmp_path) for one in images().values()])


def test_hadolint_refuses_mistake(tmp_path: Path) -> None:
    file = context.write(image("debian-emulator"), tmp_path)
    text = file.read_text()
    file.write_text(
        re.sub(r"USER \d+:\d+\nHEALTHCHECK", "USER root\nHEALTHCHECK", text).replace("FROM scratch", "FROM x")
    )
    with pytest.raises(CheckFailedError, match="DL3002") as caught:
        context.lint([file])
    assert caught.value.exit_code == 8


def test_another_time_stamp_changes_dockerfile() -> None:
    one = image("debian-emulator")
    later = dataclasses.replace(one, base=dataclasses.replace(one.base, epoch=one.base.epoch + 1))
    assert context.render(later) != context.render(one)

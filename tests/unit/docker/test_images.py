"""docker/images.yaml is consistent, and a mistake in it is reported with its line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ckpm.base.errors import TableError, UnknownWordError
from ckpm.docker import context
from ckpm.docker.images import FOLDER, image, images

TABLE = (FOLDER / "images.yaml").read_text()


def test_bases_have_their_purposes() -> None:
    purposes = {(image.base.name, image.purpose.name) for image in images().values()}
    debian = {("debian-forky", purpose) for purpose in ("emulator", "build", "test")}
    assert purposes == debian | {("rocm-7.2", "build"), ("rocm-7.2", "test")}


def test_registry_base_is_pinned_and_not_called_tested() -> None:
    registry = [image for image in images().values() if not image.is_local]
    assert registry
    for registry_image in registry:
        assert re.fullmatch(r"[a-z0-9./-]+:[\w.-]+@sha256:[0-9a-f]{64}", registry_image.base.pinned)
        assert not registry_image.tested


def test_each_purpose_adds_its_packages() -> None:
    def packages(name: str) -> set[str]:
        return {package for layer in image(name).layers for package in layer}

    assert not packages("debian-emulator") & {"hipcc", "libamdhip64-dev", "amd-smi", "g++"}
    assert packages("debian-emulator") < packages("debian-rocm-build") < packages("debian-rocm-test")
    assert packages("debian-rocm-test") - packages("debian-rocm-build") == {"amd-smi", "rocminfo"}
    assert image("debian-rocm-build").layers == image("debian-rocm-test").layers[:2]  # shared by the engine


def test_only_test_images_want_gpu() -> None:
    for listed_image in images().values():
        wants = (listed_image.purpose.devices, listed_image.purpose.shm_size)
        assert wants == ((("/dev/kfd", "/dev/dri"), "16g") if listed_image.purpose.name == "test" else ((), ""))


def test_unknown_image_suggests_nearest() -> None:
    with pytest.raises(UnknownWordError, match="did you mean 'debian-rocm-test'"):
        image("debian-rocm-tset")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("digest: sha256:92f3", "digest: sha256:92f", "bases.rocm-7.2.digest: must be text matching"),
        ("    suite: forky\n", "", "bases.debian-forky: needs either a suite of Debian or a reference"),
        ("    suite: forky\n", "    suite: forky\n    digest: sha256:" + "0" * 64 + "\n", "a suite has none"),
        ("extends: build", "extends: test", "purposes.test.extends: unknown 'test'; known: emulator, build"),
        ("shm_size: 16g", "shm_size: 16 GB", "purposes.test.shm_size: must be text matching"),
        (
            "base: debian-forky, purpose: test",
            "base: debian, purpose: test",
            "images.debian-rocm-test.base: unknown 'debian'; known: debian-forky",
        ),
        ("archs: [gfx90a, gfx942", "archs: [gfx90a, gfx943", "images.debian-emulator.archs: unknown 'gfx943'"),
        ("ck: aiter", "ck: aitre", "images.debian-rocm-build.ck: unknown 'aitre'; known: aiter, flash-attn"),
    ],
)
def test_mistake_in_table_is_reported(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    file = tmp_path / "images.yaml"
    assert old in TABLE
    file.write_text(TABLE.replace(old, new, 1))
    with pytest.raises(TableError, match=re.escape(complaint)) as caught:
        images(file)
    assert re.match(rf"{re.escape(str(file))}:\d+: ", str(caught.value))


def test_images_with_rocm_take_it() -> None:
    assert {name for name in images() if image(name).has_rocm} == images().keys() - {"debian-emulator"}
    for name in images():
        assert ("ENV CKPM_ROCM=1\n" in context.render(image(name))) == image(name).has_rocm

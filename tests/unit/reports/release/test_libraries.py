"""The wheel of prebuilt libraries: its files, its tag, its provenance, and libraries that it must not contain."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from ckpm import __version__
from ckpm.base.errors import LibraryError, RecordError
from ckpm.reports.release import libraries
from ckpm.reports.release.run import Checkout
from tests.unit import manifests

COMMIT = "c" * 40
PACKAGE = f"amd-aiter 0.1.7 sha256:{'a' * 64}"
IDENTITY = f"{PACKAGE} with headers sha256:{'b' * 64}"


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with built libraries of both archs."""
    monkeypatch.setattr(libraries, "read_checkout", lambda root: Checkout(root=root, commit=COMMIT, epoch=0))
    monkeypatch.setattr(libraries, "locate", lambda name, cache: SimpleNamespace(identity=IDENTITY))
    for arch in ("gfx942", "gfx950"):
        build(tmp_path, arch, IDENTITY)
    return tmp_path


def build(work: Path, arch: str, identity: str) -> Path:
    document = manifests.document({"k": {}}, archs=[arch], upstream="ckpm-serving", upstream_identity=identity)
    return manifests.write_library(work / "build" / arch / "ckpm-serving", document)


def run(work: Path, *arguments: str) -> None:
    libraries.run(libraries.parser().parse_args(["--work", str(work), *arguments]))


def test_wheel_of_libraries_contains_each_arch_and_provenance(work: Path) -> None:
    run(work)
    wheel = work / f"build/wheels/ckpm_libraries-{__version__}-py3-none-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(wheel) as archive:
        files = {name.removeprefix("ckpm_libraries/"): archive.read(name) for name in archive.namelist()}
    assert {"__init__.py", "provenance.intoto.json"} < files.keys()
    statement = json.loads(files["provenance.intoto.json"])
    listed = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
    names = [f"{arch}/ckpm-serving/{name}" for arch in ("gfx942", "gfx950") for name in ("libckpm.so", "manifest.json")]
    assert listed == {name: hashlib.sha256(files[name]).hexdigest() for name in names}
    definition = statement["predicate"]["buildDefinition"]
    digests = [material["digest"] for material in definition["resolvedDependencies"]]
    assert digests == [{"gitCommit": COMMIT}, {"sha256": "a" * 64}]
    assert definition["internalParameters"]["gfx950"]["compiler"] == "embedded clang 1"


def test_wheel_of_one_arch_contains_no_other(work: Path) -> None:
    run(work, "--arch", "gfx950")
    (wheel,) = (work / "build/wheels").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if "gfx942" in name]


def test_wheel_of_stale_or_missing_library_is_refused(work: Path) -> None:
    library = build(work, "gfx942", PACKAGE)
    with pytest.raises(RecordError, match=r"gfx942/ckpm-serving: built of .* Build it again: ckpm build --arch gfx942"):
        run(work)
    library.unlink()
    with pytest.raises(
        RecordError, match=r"no such library\. Build it: ckpm build --arch gfx942 --upstream ckpm-serving"
    ):
        run(work)
    assert not (work / "build/wheels").exists()


def test_wheel_of_damaged_library_is_refused(work: Path) -> None:
    (work / "build/gfx950/ckpm-serving/libckpm.so").write_bytes(b"another library")
    with pytest.raises(LibraryError, match=r"it is not the library of the manifest\.json beside it"):
        run(work)

"""A tar is unpacked only if it is, byte for byte, one that we write: no names that lead elsewhere, nothing hidden."""

from __future__ import annotations

import io
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpm.base.errors import TrustError
from ckpm.reports.release.archive import unpack, write_tar
from ckpm.reports.release.contents import demand_plain, files_of
from tests.unit.reports.release.samples import EPOCH, names_in

PLAIN = st.from_regex(r"[a-z0-9]([a-z0-9._-]{0,8}[a-z0-9])?(/[a-z0-9]{1,5}){0,2}", fullmatch=True)


def entry(name: str, content: bytes = b"x", **change: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size, info.mtime = len(content), EPOCH
    for field, value in change.items():
        setattr(info, field, value)
    return info, content


def tar_of(file: Path, *entries: tuple[tarfile.TarInfo, bytes], form: int = tarfile.USTAR_FORMAT) -> Path:
    with tarfile.TarFile(file, "w", format=form) as tar:
        for info, content in entries:
            tar.addfile(info, io.BytesIO(content))
    return file


def test_bundle_comes_out_as_it_went_in(signed: tuple[Path, Path], tmp_path: Path) -> None:
    folder, epoch = unpack(signed[1], tmp_path)
    assert epoch == EPOCH
    assert folder.name == signed[0].name
    assert {name: (folder / name).read_bytes() for name in names_in(folder)} == {
        name: (signed[0] / name).read_bytes() for name in names_in(signed[0])
    }


@pytest.mark.parametrize(
    "name",
    ["../x", "b/../../x", "/etc/x", "b//x", "b/x/", "b/\\x", "b/.x", "b/x.", "b/-x", "b/x\u00e9", "b/a:b", "b/ x"],
)
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    file = tar_of(tmp_path / "b.tar", entry("b/good"), entry(name))
    with pytest.raises(TrustError):
        unpack(file, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("second", "complaint"),
    [
        (entry("b/good"), "is there twice"),
        (entry("b/Good"), "differ by case alone"),
        (entry("b/good/x"), "is a file and a folder"),
        (entry("b/link", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "not a plain file but a link"),
        (entry("b/folder", b"", type=tarfile.DIRTYPE), "not a plain file"),
        (entry("c/x"), "not all in one folder"),
        (entry("x"), "not all in one folder"),
        (entry("b/x", mode=0o755), "not the archive that a release writes"),
        (entry("b/x", mtime=EPOCH + 1), "not the archive that a release writes"),
        (entry("b/a"), "not the archive that a release writes"),  # out of order
    ],
)
def test_what_no_release_writes_is_refused(
    tmp_path: Path, second: tuple[tarfile.TarInfo, bytes], complaint: str
) -> None:
    file = tar_of(tmp_path / "b.tar", entry("b/good"), second)
    with pytest.raises(TrustError, match=complaint):
        unpack(file, tmp_path / "out")


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data + b"x",
        lambda data: data + data,
        lambda data: data[:700],
        lambda data: b"",
        lambda data: b"no tar at all" * 100,
        lambda data: data[:520] + b"y" + data[521:],  # after the file's one byte
    ],
    ids=["trailing", "twice", "cut", "empty", "text", "padding"],
)
def test_damaged_tar_is_refused(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    file = tar_of(tmp_path / "b.tar", entry("b/good"))
    unpack(file, tmp_path / "undamaged")
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(TrustError, match=r"b\.tar"):
        unpack(file, tmp_path / "out")


def test_tar_of_many_files_is_refused_before_unpacking(tmp_path: Path) -> None:
    entries = [entry(f"b/{number}", b"") for number in range(5000)]
    with pytest.raises(TrustError, match="more than 4096 files"):
        unpack(tar_of(tmp_path / "b.tar", *entries), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_folder_of_many_files_is_refused(tmp_path: Path) -> None:
    for number in range(4097):
        (tmp_path / str(number)).touch()
    with pytest.raises(TrustError, match="more than 4096 files"):
        files_of(tmp_path)


def test_extended_headers_of_headers_are_refused(tmp_path: Path) -> None:
    """Each of 3,000 headers announces a longer name of the next entry; tarfile reads them by recursion."""
    long_name = tarfile.TarInfo("././@LongLink")
    long_name.type, long_name.size = tarfile.GNUTYPE_LONGNAME, 1
    file = tmp_path / "b.tar"
    file.write_bytes((long_name.tobuf(tarfile.GNU_FORMAT) + b"x" + b"\0" * 511) * 3000)
    with pytest.raises(TrustError, match=r"b\.tar: can't be read as a tar"):
        unpack(file, tmp_path / "out")


def test_extended_headers_cannot_rename(tmp_path: Path) -> None:
    info, content = entry("b/good", pax_headers={"path": "b/evil"})
    with pytest.raises(TrustError):
        unpack(tar_of(tmp_path / "b.tar", (info, content), form=tarfile.PAX_FORMAT), tmp_path / "out")


@given(st.lists(st.text(max_size=12), max_size=4))
def test_any_names_are_refused_or_stay_below_folder(parts: list[str]) -> None:
    name = "/".join(parts)
    try:
        demand_plain([name], "here")
    except TrustError:
        return
    assert name.isascii()
    assert name == name.strip()
    assert not Path(name).is_absolute()
    assert not {".", "..", ""} & set(name.split("/"))


@given(st.dictionaries(PLAIN, st.binary(max_size=700), min_size=1, max_size=5))
def test_tar_of_any_plain_names_comes_out_equal(files: dict[str, bytes]) -> None:
    try:
        demand_plain(files, "here")
    except TrustError:
        return  # a file and a folder of one name
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "b"
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        tars = [Path(temporary) / "1.tar", Path(temporary) / "2.tar"]
        write_tar(folder, list(files), EPOCH, tars[0])
        write_tar(folder, list(reversed(files)), EPOCH, tars[1])
        assert tars[0].read_bytes() == tars[1].read_bytes()
        out, _ = unpack(tars[0], Path(temporary) / "out")
        assert {name: (out / name).read_bytes() for name in names_in(out)} == files

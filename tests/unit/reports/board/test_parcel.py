"""The file of a first run leads back to no machine, and one that first-gpu-run did not write is refused."""

from __future__ import annotations

import io
import lzma
import tarfile
from pathlib import Path

import pytest

from ckpm.base.errors import TrustError
from ckpm.commands import main
from ckpm.reports.board import parcel
from ckpm.reports.board.table import claims_table
from ckpm.timing.score import OWN, Score
from tests.docs.pages import ROOT
from tests.unit.reports.board_samples import MODELLED, write_parcel


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("built /home/ann/clone/build/x.so (/opt/rocm/lib/y.so)", "built PATH/x.so (/opt/rocm/lib/y.so)"),
        ('"file": "/srv/ann/x.json", "unit": "TFLOP/s"', '"file": "PATH/x.json", "unit": "TFLOP/s"'),
        ("from https://ann:secret@index.corp/simple or https://github.com/ROCm/x", "from ADDRESS or https://github.com/ROCm/x"),
        ("node-17: node-17.corp, not node-170", "HOST: HOST.corp, not node-170"),
        ("64/8 heads of 4K/8K, and/or page-fault/lengths.m64", "64/8 heads of 4K/8K, and/or page-fault/lengths.m64"),
    ],
)  # fmt: skip
def test_scrub_hides_paths_addresses_and_hosts(text: str, sent: str) -> None:
    assert parcel.scrub(text, {"node-17": "HOST"}) == sent


def repack(file: Path, *entries: tuple[str, bytes, bytes]) -> Path:
    """Replace the parcel's tar by one of these entries: name, content, kind."""
    stream = io.BytesIO()
    with tarfile.TarFile(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content, kind in entries:
            info = tarfile.TarInfo(name)
            info.size, info.type, info.linkname = len(content), kind, "/etc/passwd" if kind == tarfile.SYMTYPE else ""
            tar.addfile(info, io.BytesIO(content))
    file.write_bytes(lzma.compress(stream.getvalue()))
    return file


@pytest.mark.parametrize(
    ("name", "content", "kind", "complaint"),
    [
        ("run/../../x", b"x", tarfile.REGTYPE, "not a name that a bundle can have"),
        ("run/link", b"", tarfile.SYMTYPE, "not a plain file but a link"),
        ("run/SHA256SUMS", b"0" * 64 + b"  x\n", tarfile.REGTYPE, "x: missing, SHA256SUMS lists it"),
    ],
)
def test_open_parcel_refuses_hostile_tar(
    tmp_path: Path, name: str, content: bytes, kind: bytes, complaint: str
) -> None:
    file = repack(tmp_path / "run.tar.xz", (name, content, kind))
    with pytest.raises(TrustError, match=complaint):
        parcel.open_parcel(file, tmp_path / "opened")
    assert not (tmp_path / "x").exists()


def test_open_parcel_refuses_changed_cut_long_and_large_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_parcel(tmp_path / "run")
    whole = file.read_bytes()
    tar = lzma.decompress(whole)
    for number, (data, complaint) in enumerate({
        lzma.compress(tar.replace(b"O differs", b"O agrees.")): "its sha256 is",
        whole[:-20]: "ends in the middle",
        whole + b"x": "bytes after its end",
        b"x" * 100: "can't be read as a file of first-gpu-run",
    }.items()):  # fmt: skip
        file.write_bytes(data)
        with pytest.raises(TrustError, match=complaint):
            parcel.open_parcel(file, tmp_path / f"opened-{number}")
    file.write_bytes(whole)
    parcel.open_parcel(file, tmp_path / "good")
    monkeypatch.setattr(parcel, "_LARGEST", len(tar) - 1)
    with pytest.raises(TrustError, match="more than"):
        parcel.open_parcel(file, tmp_path / "large")


def test_gpu_results_shows_failures_beside_emulator_and_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gpu-results", str(write_parcel(tmp_path / "run"))]) == 0
    page = capsys.readouterr().out
    assert "| batch-prefill: batch-prefill/other | O differs | passed:" in page
    assert "| asm | 1x8/8x1024 | 500 | 1000 | 1\\.5 |" in page
    assert "WMAPE 100.0% of 1 rows" in page  # 1000 modelled, 500 measured
    assert "otherwise: 1 of 2 cases" in page
    assert "open: page-fault: not run" in page


def test_gpu_results_compares_boards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = write_parcel(tmp_path / "run"), write_parcel(tmp_path / "other", tflops=250.0)
    assert main(["gpu-results", str(first), "--against", str(second)]) == 0
    assert "- published: asm, 1x8/8x1024, TFLOP/s: 500 / 250, ratio 2.000" in capsys.readouterr().out


def test_gpu_results_adds_own_group_of_hardware_alone(tmp_path: Path) -> None:
    file = tmp_path / "score.json"
    Score(tier="full", rows=(MODELLED,), groups={}, clocks={}).write(file)
    for _ in range(2):  # the second time replaces the first
        assert main(["gpu-results", str(write_parcel(tmp_path / "run")), "--score", str(file)]) == 0
    score = Score.read(file)
    assert (score.groups[OWN].rows, score.groups[OWN].error, len(score.rows)) == (1, 1.0, 2)
    stand_in = write_parcel(tmp_path / "stand", stand_in=True)
    assert main(["gpu-results", str(stand_in), "--score", str(file)]) == 2


def test_page_of_claims_is_table_of_claims() -> None:
    assert claims_table() in (ROOT / "docs/reference/unproven.md").read_text()

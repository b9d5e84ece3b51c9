"""The file of a first run leads back to no machine, and one that first-gpu-run did not write is refused."""

from __future__ import annotations

import io
import json
import lzma
import re
import tarfile
from pathlib import Path

import pytest

from ckpm.base.errors import RecordError, TrustError
from ckpm.base.results import Results
from ckpm.commands import main
from ckpm.reports.board import parcel
from ckpm.reports.board.page import RUN
from ckpm.reports.board.table import claims_table
from ckpm.timing.score import OWN, Score
from tests.docs.pages import ROOT
from tests.fuzz.running import complaints, known_codes
from tests.unit.reports.board_samples import MODELLED, write_parcel
from tests.unit.reports.report_samples import case
from tests.unit.shared import Run


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


@pytest.mark.parametrize("name", ["anna-b", "bender.corp.example", "zorg"])
def test_no_text_of_a_step_leads_back_to_machine(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Host, user, home and registry have names that nothing else has, and are in all that a step may write."""
    home, clone, work = (tmp_path / f"{name}-{folder}" for folder in ("home", "private clone", "work"))
    registry, user = f"index-{name}.example", f"{name}-user"
    monkeypatch.setattr(parcel.socket, "gethostname", lambda: name)  # type: ignore[attr-defined]
    monkeypatch.setattr(parcel, "IMPORTS", clone)
    monkeypatch.setattr(parcel, "data", lambda part: ROOT / part)
    for variable, value in {
        "HOME": str(home), "USER": user, "CKPM_CACHE": str(home / "cache"), "PIP_INDEX_URL": f"https://{registry}/simple",
    }.items():  # fmt: skip
        monkeypatch.setenv(variable, value)
    main(["doctor"])
    log = tmp_path / "doctor"
    log.write_text(capsys.readouterr().out + f"built by {user} on {name.upper()}: {home}/cache, {clone}/ckpm/a.py\n")
    trace = (
        f'Traceback (most recent call last):\n  File "{clone}/ckpm/a b.py", line 1, in f\n'
        f"OSError: [Errno 28] No space left on device: '{work}/build'\n{work}/x\nclang -I{home}/include -L{work}/lib\n"
        f"cd /{name}/{user} PATH=/usr/bin:{home}/bin cache:{home}/cache\n"
        f"HTTPSConnectionPool(host='{registry}', port=443): {user}@{registry} 10.11.12.13\n"
    )
    results = Results((case("dispatch/a", "failed", trace, trace),), {"library": f"{work}/libckpm.so"})
    results.write(tmp_path / "results")
    packed = parcel.pack({"log": log, "results": tmp_path / "results"}, {"page": trace}, tmp_path / "run", epoch=0)
    sent = lzma.decompress(packed.read_bytes()).decode()
    for secret in (name, name.partition(".")[0], tmp_path.name, "private", "10.11.12.13"):
        assert secret not in sent.lower(), sent[max(0, sent.lower().find(secret) - 200) :][:400]
    assert "PATH/libckpm.so" in sent
    Results.read(tmp_path / "run/results")  # still one


def tar_of(*entries: tuple[str, bytes, bytes]) -> bytes:
    """A tar of entries: name, content, kind."""
    stream = io.BytesIO()
    with tarfile.TarFile(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content, kind in entries:
            info = tarfile.TarInfo(name)
            info.size, info.type, info.linkname = len(content), kind, "/etc/passwd" if kind != tarfile.REGTYPE else ""
            tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def plain(*names: str) -> bytes:
    return tar_of(*((name, b"x", tarfile.REGTYPE) for name in names))


def declares(size: int) -> bytes:
    """A tar whose file is not there."""
    info = tarfile.TarInfo("run/x")
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT)


TARS: dict[str, tuple[bytes, str]] = {
    "traversal": (plain("run/../../x"), "not a name that a bundle can have"),  # others: release/test_archive.py
    "control characters": (plain("run/a\x1b[31m\n\n"), "not a name that a bundle can have"),
    "nothing": (plain(), "there are none"),
    **{
        f"kind {kind!r}": (tar_of(("run/link", b"", kind)), "not a plain file but a link")
        for kind in (tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE)
    },
    "size of exabytes": (declares(1 << 62), "run.tar.tar: can't be read"),
    "another archive": (lzma.compress(plain("run/x")), "can't be read as a tar"),
    "no sums": (plain("run/x"), "SHA256SUMS: can't be read"),
    "sums of a file that is missing": (
        tar_of(("run/SHA256SUMS", b"0" * 64 + b"  x\n", tarfile.REGTYPE)), "x: missing, SHA256SUMS lists it",
    ),
    "no list of sums": (tar_of(("run/SHA256SUMS", b"\xff\n", tarfile.REGTYPE)), "SHA256SUMS: can't be read"),
}  # fmt: skip
RUNS = {
    "no run": ({"x": "{}"}, "run.json"),
    "bad JSON": ({RUN: "{"}, "can't be read as a run"),
    "another record": ({RUN: '{"arch": 1}'}, "run.json: arch"),
}


@pytest.mark.parametrize("name", [*TARS, *RUNS])
def test_hostile_file_is_refused_in_a_paragraph(name: str, tmp_path: Path, run: Run) -> None:
    file = tmp_path / "files/run.tar.xz"
    file.parent.mkdir()
    if name in TARS:
        content, complaint = TARS[name]
        file.write_bytes(lzma.compress(content))
    else:
        texts, complaint = RUNS[name]
        parcel.pack({}, texts, file.parent / "run", epoch=0)
    code, out, err = run("gpu-results", file)
    assert code == (TrustError if name in TARS else RecordError).exit_code, err
    assert re.search(complaint, err)
    assert complaints(code, err, out, known_codes()) == ""
    assert [*tmp_path.iterdir()] == [file.parent]  # nothing is written elsewhere


def test_run_names_no_file_outside_its_folder(tmp_path: Path) -> None:
    run = json.loads((write_parcel(tmp_path / "run").with_name("run") / RUN).read_text())
    for outside in ("../../x", "/etc/passwd", "missing"):
        run["beside"] = {"a": outside}
        file = parcel.pack({}, {RUN: json.dumps(run)}, tmp_path / "run", epoch=0)
        assert main(["gpu-results", str(file)]) == RecordError.exit_code


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


def test_gpu_results_shows_failures_beside_emulator_and_model(tmp_path: Path, run: Run) -> None:
    code, page, _ = run("gpu-results", write_parcel(tmp_path / "run"))
    assert code == 0
    assert "| batch-prefill: batch-prefill/other | O differs | passed:" in page
    assert "| asm | 1x8/8x1024 | 500 | 1000 | 1\\.5 |" in page
    assert "WMAPE 100.0% of 1 rows" in page  # 1000 modelled, 500 measured
    assert "otherwise: 1 of 2 cases" in page
    assert "open: page-fault: not run" in page


def test_gpu_results_compares_boards(tmp_path: Path, run: Run) -> None:
    first, second = write_parcel(tmp_path / "run"), write_parcel(tmp_path / "other", tflops=250.0)
    code, out, _ = run("gpu-results", first, "--against", second)
    assert (code, "- published: asm, 1x8/8x1024, TFLOP/s: 500 / 250, ratio 2.000" in out) == (0, True)


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

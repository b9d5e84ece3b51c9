"""The archive of a run: whole, the same bytes again, and true about what was measured on a GPU and what was not."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from ckpm.attention.launch.counters import LIBRARY_FACTS, METRICS, Measured, Measurements
from ckpm.base.results import Results
from ckpm.reports.calibration import versions
from ckpm.reports.cli import main
from ckpm.reports.verdicts import Gate, Row
from tests.unit.reports.report_samples import KERNEL, PROBLEM, case, manifest, write

ROOT = Path(__file__).parents[3]
TIMED = "performance/prefill.m64-full-q256k1024"
COUNTS = {
    **dict.fromkeys(METRICS, 0), "workgroups": 16, "waves": 64, "mfma_flops": 1_000_000, "mfma_cycles": 240_000,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty one: what is said of versions must not depend on what this user has built, nor wait for its sums."""
    monkeypatch.setenv("CKPM_CACHE", str(tmp_path / "cache"))


def archived(folder: Path, output: Path, *words: str) -> dict[str, bytes]:
    """The archive's files by name, below its one folder."""
    assert main(["archive", "--input", str(folder), "--output", str(output), *words]) == 0
    with tarfile.open(output) as tar:
        entries = tar.getmembers()
        assert {entry.name.partition("/")[0] for entry in entries} == {output.name.removesuffix(".tar.gz")}
        read = {entry.name.partition("/")[2]: tar.extractfile(entry) for entry in entries}
        return {name: stream.read() for name, stream in read.items() if stream}


def on_a_gpu(folder: Path, gpu: str = "AMD Instinct MI355X", device: str = "hip", microseconds: float = 5.0) -> Path:
    """A library, a suite that ran on a device, and a problem's time."""
    write(folder, suites={})
    Results((case(PROBLEM),), {"device": device}).write(folder / "gfx950/aiter/batch-prefill.json")
    row = Row(
        gate="gpu", subject=TIMED, metric="time", unit="us", baseline=5.0, candidate=microseconds, threshold="2 %",
        verdict="unchanged", note="",
    )  # fmt: skip
    Gate.of([row], {"arch": "gfx950", "upstream": "aiter", "gpu": gpu, "rocm": "7.2.0"}).write(folder / "gpu.json")
    return folder


def count(folder: Path) -> None:
    """Counts of the timed problem, as the emulated gate leaves them beside the library."""
    listed: dict[str, Any] = manifest()
    provenance = {name: str(listed[name]) for name in LIBRARY_FACTS} | {"arch": "gfx950", "tier": "smoke"}
    one = Measured(
        problem=TIMED, kernel=KERNEL, dtype="bf16", occupancy_waves=2, compulsory_bytes=1_000_000, counters=COUNTS
    )
    Measurements(provenance=provenance, problems=(one,)).write(folder / "gfx950/aiter/counters.json")


def test_it_holds_results_logs_tables_and_sums_of_all(tmp_path: Path) -> None:
    folder = write(tmp_path / "build")
    (folder / "first.log").write_text("said by nox")
    (folder / "gfx950/aiter/page-fault.xml").write_text("<testsuites/>")
    (folder / "gfx950/aiter/libckpm.so.old").write_text("of somebody")
    outside = tmp_path / "dmesg.txt"
    outside.write_text("amdgpu: hung")
    files = archived(folder, tmp_path / "run.tar.gz", "--log", str(outside))
    assert files["results/first.log"] == b"said by nox"
    assert files["logs/dmesg.txt"] == b"amdgpu: hung"
    for name in ("manifest.json", "batch-prefill.json", "page-fault.json", "page-fault.xml"):
        assert files[f"results/gfx950/aiter/{name}"] == (folder / "gfx950/aiter" / name).read_bytes()
    assert files["tables/model.yaml"] == (ROOT / "reports/gates/model.yaml").read_bytes()
    sums = dict(line.split("  ")[::-1] for line in files.pop("SHA256SUMS").decode().splitlines())
    assert sums == {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    assert not any("libckpm.so" in name for name in files)


def test_the_same_run_makes_the_same_bytes(tmp_path: Path) -> None:
    folder = write(tmp_path / "build")
    archived(folder, tmp_path / "run.tar.gz")
    for file in folder.rglob("*.json"):
        file.touch()
    (tmp_path / "again").mkdir()
    archived(folder, tmp_path / "again" / "run.tar.gz")
    first, again = (tmp_path / "run.tar.gz").read_bytes(), (tmp_path / "again" / "run.tar.gz").read_bytes()
    assert first == again
    assert first[3:8] == b"\0\0\0\0\0"  # gzip's header: no file name, no time
    with tarfile.open(tmp_path / "run.tar.gz") as tar:
        assert {(entry.mtime, entry.uid, entry.uname, entry.mode) for entry in tar} == {(0, 0, "", 0o644)}


def test_the_emulator_is_no_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its timer gives times, too, which are the host's."""
    folder = on_a_gpu(tmp_path / "build", gpu="emulated gfx950", device="emulator")
    files = archived(folder, tmp_path / "run.tar.gz")
    found = json.loads(files["contents.json"])
    assert (found["gpus"], found["cases_on_gpu"], found["problems_timed"]) == ([], 0, 0)
    assert found["devices"] == {"gfx950/aiter/batch-prefill.json": "emulator", "gpu.json": "emulator"}
    said = capsys.readouterr().out
    assert said.startswith("no GPU was used: nothing in this archive was measured on one\n")
    assert "no suite ran on a GPU" in said
    assert "no problem was timed on a GPU" in said
    assert len(files["times.csv"].decode().splitlines()) == 1


def test_a_gpu_is_named_with_what_is_lacking(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = archived(on_a_gpu(tmp_path / "build"), tmp_path / "run.tar.gz")
    found = json.loads(files["contents.json"])
    assert (found["gpus"], found["cases_on_gpu"]) == (["AMD Instinct MI355X"], 1)
    assert found["devices"]["gpu.json"] == "AMD Instinct MI355X"
    said = capsys.readouterr().out
    assert "measured on AMD Instinct MI355X: 1 cases of suites, 1 times of problems, of which 0 have counts" in said
    assert "1 of 1 timed problems have no counts" in said
    assert "no suite ran" not in said


def test_times_stand_beside_the_model(tmp_path: Path) -> None:
    """16 workgroups of 4 waves, a wave for each SIMD, on 256 compute units: one round of 240,000 / 64 = 3750 cycles of
    MFMA in each wave, and nothing else; 1.5625 us at 2400 MHz. 1 MB at 8 TB/s takes 0.125 us."""
    folder = on_a_gpu(tmp_path / "build", microseconds=6.25)
    count(folder)
    files = archived(folder, tmp_path / "run.tar.gz")
    (row,) = csv.DictReader(io.StringIO(files["times.csv"].decode()))
    assert (row["problem"], row["library"], row["arch"]) == (TIMED, "gfx950/aiter", "gfx950")
    assert float(row["measured_us"]) == pytest.approx(6.25)
    assert float(row["modelled_us"]) == pytest.approx(1.5625)
    assert float(row["ratio"]) == pytest.approx(4.0)
    # 4 heads of 256 x 1024 scores, each 2 x (128 + 128) operations, in 6.25 us
    assert float(row["measured_tflops"]) == pytest.approx(4 * 256 * 1024 * 512 / 6.25e-6 / 1e12)
    found = json.loads(files["contents.json"])
    assert found["problems_timed_and_counted"] == 1
    assert [line.partition(":")[0] for line in found["lacking"]] == [
        "none of the timed problems has a published figure of this GPU"
    ]


def test_times_stand_beside_published_figures(tmp_path: Path) -> None:
    folder = write(tmp_path / "build", suites={})
    row = Row(
        gate="gpu", subject="performance/published_fp8.tensor-q1k", metric="time", unit="us", baseline=40.0,
        candidate=40.0, threshold="2 %", verdict="unchanged", note="",
    )  # fmt: skip
    provenance = {"arch": "gfx950", "upstream": "aiter", "gpu": "AMD Instinct MI355X", "rocm": "7.2.0"}
    Gate.of([row], provenance).write(folder / "gpu.json")
    files = archived(folder, tmp_path / "run.tar.gz")
    rows = list(csv.DictReader(io.StringIO(files["published.csv"].decode())))
    assert [(one["variant"], float(one["published"])) for one in rows] == [("V2", 43.1), ("V3", 47.7)]  # of #6054
    assert {(one["rocm_there"], one["rocm_here"]) for one in rows} == {("7.1.1", "7.2.0")}


def test_versions_are_said_without_what_changes_from_minute_to_minute(tmp_path: Path) -> None:
    files = archived(write(tmp_path / "build"), tmp_path / "run.tar.gz")
    found = json.loads(files["versions.json"])
    assert set(found) == {"revision", "kernel", "gpus", "doctor", "packages"}
    assert found["doctor"]["toolchain embedded"].startswith("ok: embedded ziglang")
    assert {"cache", "jobs"} & set(found["doctor"]) == set()
    assert found["packages"]["numpy"]
    assert versions._revision(tmp_path) == ""  # no clone


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--input", "nothing", "--output", "run.tar.gz"], 47, "nothing to report"),
        (["--input", "build", "--output", "run.zip"], 2, "--output run.zip: a name that ends with .tar.gz is needed"),
        (["--input", "build", "--output", "run.tar.gz", "--log", "gone.log"], 2, "--log gone.log: there is no such"),
        (["--input", "build", "--output", "run.tar.gz", "--log", "a/x", "--log", "b/x"], 2, "has the name x: rename"),
        (["--input", "build", "--output", "build.tar.gz", "--log", "build.tar.gz"], 97, "it is read by this command"),
    ],
)
def test_refusals(
    words: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "build")
    for log in ("a/x", "b/x", "build.tar.gz"):
        Path(log).parent.mkdir(exist_ok=True)
        Path(log).write_text("kept")
    assert main(["archive", *words]) == code
    assert message in capsys.readouterr().err
    assert not Path("run.tar.gz").exists()
    assert Path("build.tar.gz").read_text() == "kept"


def test_damaged_results_are_not_archived_and_an_older_archive_is_not_left(tmp_path: Path) -> None:
    folder, output = write(tmp_path / "build"), tmp_path / "run.tar.gz"
    archived(folder, output)
    (folder / "gfx950/aiter/page-fault.json").write_text("{")
    assert main(["archive", "--input", str(folder), "--output", str(output)]) == 35
    assert not output.exists()

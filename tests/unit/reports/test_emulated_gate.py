"""The emulated gate: the model by hand, counters as files, and what makes the gate fail."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ckpm.attention.launch import buffers, launching
from ckpm.attention.launch.counters import METRICS, PROGRAM, Measured, Measurements, flatten
from ckpm.base.errors import CheckFailedError, InconclusiveError, LibraryError, RecordError, UnknownWordError
from ckpm.base.results import FOREIGN_LIBRARY, LIBRARY_SHA256, SOME_CASES, Results
from ckpm.kernels.library.manifest import identity_facts
from ckpm.matrix.problems.case import SuiteCase, wave_instructions
from ckpm.matrix.problems.performance import compulsory_bytes, performance_problems
from ckpm.reports.gates import emulated as emulated_gate
from ckpm.reports.gates.comparing import compare, read_thresholds
from ckpm.reports.gates.emulated import DECODE_CYCLES, MODEL_METRICS, SUITE_METRICS, by_problem, notes
from ckpm.reports.verdicts import EMULATED, SUITES, Gate, VerdictRow, demand
from ckpm.timing import measure as measuring
from ckpm.timing.measure import _count_launch, demand_counters, measure
from ckpm.timing.model import Machine, cannot_see, estimate, machines
from tests.unit import manifests
from tests.unit.reports.report_samples import case
from tests.unit.shared import Run

KERNEL = "fmha_batch_prefill_d128_bf16"
LOADED = SimpleNamespace(family="batch_prefill")  # the only fields that are read
FACTS = dict.fromkeys(
    ("toolchain", "identity", "upstream", "upstream_identity", "dialect", "mask_impl", "selection", "flags"), "x"
)
# two workgroups of four waves
COUNTERS = {
    **dict.fromkeys(METRICS, 0),
    "instructions": 860, "instructions_valu": 400, "instructions_trans": 40, "instructions_mfma": 160,
    "instructions_lds": 80, "instructions_vmem": 80, "instructions_salu": 100, "mfma_flops": 1 << 20,
    "mfma_cycles": 160 * 16, "global_load_bytes": 12800, "global_store_bytes": 0, "lds_load_bytes": 51200,
    "lds_dma_bytes": 12800, "lds_bank_conflicts": 100, "workgroups": 2, "waves": 8,
}  # fmt: skip
ONE = Measured(
    problem="performance/one", kernel=KERNEL, dtype="bf16", occupancy_waves=2, compulsory_bytes=1024, counters=COUNTERS
)
LISTED = manifests.record()
MACHINE = Machine(
    arch="gfx950", product="a round one", clock_mhz=1000, compute_units=1, hbm_gb_s=1000, vector_cycles=4,
    transcendental_cycles=8, issue_cycles=4, lds_read=256, lds_write=128, l1=64, matrix_flops=2048,
)  # fmt: skip


def measurements(*problems: Measured, **left_out: str) -> Measurements:
    provenance = {"arch": "gfx950", **FACTS, "tier": "smoke"}
    return Measurements(provenance=provenance, problems=problems, left_out=left_out)


def with_counts(**change: int) -> Measured:
    return dataclasses.replace(ONE, counters={**COUNTERS, **change})


def judge(measured: Measurements, accepted: Measurements | None = None) -> tuple[VerdictRow, ...]:
    machines_by_arch = {"gfx950": MACHINE}
    before, after = (by_problem(counted, machines_by_arch) for counted in (accepted or measurements(ONE), measured))
    return compare(EMULATED, before, after, read_thresholds(EMULATED), notes(measured))


def test_model_by_hand() -> None:
    """Each SIMD of a workgroup has one wave of 20 MFMA, 50 vector, 5 transcendental, 32.5 other instructions."""
    model = estimate(ONE, MACHINE)
    assert model.units == {
        "matrix": 20 * 16,
        "vector": 50 * 4 + 5 * 8,
        "lds": 25600 / 256 + 6400 / 128 + 50,
        "l1": 6400 / 64,
        "serial": 320 + 240 + 32.5 * 4,
    }
    # two workgroups share the compute unit: 2 x 320 cycles of matrix cores, less than one wave's 690 in order
    assert (model.resident, model.bound, model.workgroup_cycles, model.grid_cycles) == (2, "serial", 690, 690)
    assert model.microseconds == 0.69
    assert model.intensity == 1024
    assert model.roof_tflops == pytest.approx(2.048)  # one compute unit of 2048 a cycle at 1 GHz, not 1024 x 1 TB/s
    assert model.steady_cycles == 345
    assert model.of_roof == pytest.approx((1 << 19) / 345 * 1e9 / 2.048e12)


@pytest.mark.parametrize(
    ("change", "bound", "cycles"),
    [
        ({"mfma_cycles": 8 * 1000}, "matrix", 2 * 1000),
        ({"lds_bank_conflicts": 1000}, "lds", 2 * 650),
        ({"scratch_bytes": 128000}, "l1", 2 * 1100),
    ],
)
def test_estimate_names_bound_of_grid(change: dict[str, int], bound: str, cycles: float) -> None:
    model = estimate(with_counts(**change), MACHINE)
    assert (model.bound, model.grid_cycles) == (bound, cycles)


def test_estimate_memory_bounds_grid_with_many_reads() -> None:
    model = estimate(dataclasses.replace(ONE, compulsory_bytes=10**6), MACHINE)
    assert (model.bound, model.grid_cycles) == ("hbm", 1000)
    assert model.roof_tflops == pytest.approx((1 << 20) / 1e6)


def test_workgroups_that_return_at_once_are_not_average_ones() -> None:
    early = estimate(with_counts(workgroups=4, waves=16, early_out_workgroups=2), MACHINE)
    assert early.units["matrix"] == estimate(ONE, MACHINE).units["matrix"]


@pytest.mark.parametrize("name", ["mfma_flops", "mfma_cycles", "waves", "workgroups"])
def test_count_of_nothing_is_not_figure(name: str) -> None:
    with pytest.raises(InconclusiveError, match=name):
        estimate(with_counts(**{name: 0}), MACHINE)


def test_peaks_are_those_that_amd_publishes() -> None:
    """MI300X: 1307.4 TFLOP/s of bf16 and 2614.9 of fp8; MI355X: 2.5 and 5 PFLOP/s (data sheets)."""
    machines_by_arch = machines()
    assert machines_by_arch["gfx942"].peak_tflops("bf16") == pytest.approx(1307.4, abs=0.1)
    assert machines_by_arch["gfx942"].peak_tflops("fp8bf16") == pytest.approx(2614.9, abs=0.1)
    assert machines_by_arch["gfx950"].peak_tflops("fp16") == pytest.approx(2500, rel=0.01)
    assert machines_by_arch["gfx950"].peak_tflops("fp8bf16") == pytest.approx(5000, rel=0.01)
    assert any("caches" in line for line in cannot_see())


def test_same_counts_are_unchanged() -> None:
    judged_rows = judge(measurements(ONE))
    assert {row.verdict for row in judged_rows} == {"unchanged"}
    assert [row.metric for row in judged_rows] == [*METRICS, *MODEL_METRICS]


@pytest.mark.parametrize(
    ("change", "metric"),
    [
        ({"instructions": 900, "instructions_valu": 440}, "instructions_valu"),
        ({"scratch_bytes": 256}, "scratch_bytes"),
        ({"lds_bank_conflicts": 101}, "lds_bank_conflicts"),
        ({"mfma_flops": 1 << 21, "mfma_cycles": 5120}, "model_steady_cycles"),
    ],
)
def test_regression_names_problem_kernel_and_metric(change: dict[str, int], metric: str) -> None:
    gate = Gate.of(judge(measurements(with_counts(**change))), {})
    with pytest.raises(
        CheckFailedError, match=rf"(?s)  regressed: {metric}: .*\n    performance/one; kernel {KERNEL}$"
    ):
        demand(gate)


def test_doubled_loop_is_seen_in_every_count_of_work() -> None:
    twice = {name: value * (1 if name in ("workgroups", "waves") else 2) for name, value in COUNTERS.items()}
    verdicts = {row.metric: row.verdict for row in judge(measurements(with_counts(**twice)))}
    for metric, value in COUNTERS.items():
        assert verdicts[metric] == ("regressed" if value and metric not in ("workgroups", "waves") else "unchanged")
    assert {verdicts[metric] for metric in MODEL_METRICS} == {"regressed"}


def test_rows_problem_without_kernel_regresses_with_reason() -> None:
    two = dataclasses.replace(ONE, problem="performance/two")
    judged_rows = judge(measurements(ONE, **{"performance/two": "no kernel with lse True"}), measurements(ONE, two))
    (lost,) = [row for row in judged_rows if row.subject == "performance/two"]
    assert lost.verdict == "regressed"
    assert "no kernel with lse True" in lost.note


def test_every_metric_has_threshold() -> None:
    assert set(read_thresholds(EMULATED)) == {*METRICS, *MODEL_METRICS, *SUITE_METRICS, DECODE_CYCLES}


def test_arch_without_model_raises() -> None:
    with pytest.raises(InconclusiveError, match="no numbers of gfx950"):
        by_problem(measurements(ONE), {"gfx942": MACHINE})


def test_counters_are_summed_over_kernels() -> None:
    kinds = ("salu", "valu", "trans", "mfma", "smem", "vmem", "lds", "branch", "wait", "barrier", "other")
    others = [name for name in METRICS if not name.startswith("instructions")]
    kernel_counters = {"launches": 1, "instructions": dict.fromkeys(kinds, 2), **dict.fromkeys(others, 5)}
    totals = flatten({"kernels": {"a": kernel_counters, "b": kernel_counters}})
    assert totals == {name: 44 if name == "instructions" else 10 if name in others else 4 for name in METRICS}


def test_measurements_are_read_as_they_were_written(tmp_path: Path) -> None:
    wrote = measurements(ONE, **{"performance/two": "why"})
    wrote.write(tmp_path / "counters.json")
    assert Measurements.read(tmp_path / "counters.json") == wrote


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda d: d["problems"][0]["counters"].pop("barriers"), "barriers"),
        (lambda d: d["problems"][0]["counters"].update(waves=-1), "counters.waves: must not be negative, is -1"),
        (lambda d: d["provenance"].pop("identity"), "provenance.identity: is missing, expected text"),
        (lambda d: d.update(problems=[]), "at least one"),
        (lambda d: d.update(problems=d["problems"] * 2), "named twice"),
        (
            lambda d: d.update(cycles_a_token={"performance/two": 1.5}),
            "cycles_a_token.performance/two: no such problem",
        ),
        (lambda d: d.update(format=2), "no measurements of format 1"),
    ],
)
def test_damaged_measurements_name_field(tmp_path: Path, damage: Any, complaint: str) -> None:
    file = tmp_path / "counters.json"
    measurements(ONE).write(file)
    document = json.loads(file.read_text())
    damage(document)
    file.write_text(json.dumps(document))
    with pytest.raises(RecordError, match=complaint):
        Measurements.read(file)


def test_smoke_problems_take_seconds() -> None:
    """A slow machine executes some million wave-instructions a second; the tier has a minute."""
    smoke = performance_problems("smoke")
    assert sum(map(wave_instructions, smoke)) < 30e6
    assert set(smoke) < set(performance_problems("full")) < set(performance_problems("nightly"))
    with pytest.raises(UnknownWordError):
        performance_problems("huge")


def test_compulsory_bytes_by_hand() -> None:
    """3 + 5 queries of 4 heads in and out, 10 + 20 keys and values of 2 heads, 128 numbers of 2 bytes each."""
    lengths: dict[str, Any] = {"seqlens_q": (3, 5), "seqlens_k": (10, 20)}
    problem = SuiteCase(name="p", suite="performance", tier="smoke", group="g", nhead_q=4, nhead_k=2, **lengths)
    assert compulsory_bytes(problem) == 2 * 128 * (2 * 8 * 4 + 2 * 30 * 2)


def test_missing_or_foreign_library_raises(tmp_path: Path) -> None:
    library = tmp_path / "libckpm.so"
    with pytest.raises(InconclusiveError, match=r"no such file. Build the library first: ckpm build --arch gfx950"):
        measure(library, "gfx950", "smoke")
    library.touch()
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps(manifests.document({}, archs=["gfx942"])))
    with pytest.raises(InconclusiveError, match="built for gfx942, not for gfx950"):
        measure(library, "gfx950", "smoke")
    manifest.write_text("{")
    with pytest.raises(InconclusiveError, match="no manifest"):
        measure(library, "gfx950", "smoke")


def test_library_measured_is_hashed(tmp_path: Path) -> None:
    library = manifests.write_library(tmp_path, manifests.document({}))
    listed = manifests.record()
    digest = hashlib.sha256(manifests.LIBRARY_BYTES).hexdigest()
    assert identity_facts(library, listed, foreign=False) == {LIBRARY_SHA256: digest}
    library.write_bytes(b"rebuilt by hand")
    with pytest.raises(LibraryError, match="it is not the library of the"):
        measure(library, "gfx950", "smoke")
    assert identity_facts(library, listed, foreign=True) == {
        LIBRARY_SHA256: hashlib.sha256(b"rebuilt by hand").hexdigest(),
        FOREIGN_LIBRARY: f"sha256 {digest}",
    }


@pytest.mark.parametrize("foreign", [False, True])
def test_file_too_large_for_library_is_not_read(tmp_path: Path, foreign: bool) -> None:
    library = tmp_path / "libckpm.so"
    library.touch()
    os.truncate(library, 1 << 40)
    with pytest.raises(LibraryError, match=r"libckpm\.so: its 1,099,511,627,776 bytes can't be a library"):
        identity_facts(library, manifests.record(), foreign=foreign)


@pytest.fixture
def count_runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tiers that were measured, by a stub that counts ONE."""
    tiers: list[str] = []

    def stub(library: Path, arch: str, tier: str) -> Measurements:
        tiers.append(tier)
        facts = {LIBRARY_SHA256: hashlib.sha256(library.read_bytes()).hexdigest(), PROGRAM: "this program"}
        return Measurements(provenance=measuring.provenance(LISTED, arch, tier, facts), problems=(ONE,))

    monkeypatch.setattr(measuring, "measure", stub)
    monkeypatch.setattr("ckpm.timing.measure.program_digest", lambda: "this program")
    return tiers


def test_gate_reads_counters_that_measure_wrote(
    tmp_path: Path, count_runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    library = manifests.write_library(tmp_path, manifests.document({}))
    first = demand_counters(library, LISTED, "gfx950")
    assert capsys.readouterr().out == f"1 problems of tier smoke on the emulated gfx950: {tmp_path / 'counters.json'}\n"
    assert first == Measurements.read(tmp_path / "counters.json") == demand_counters(library, LISTED, "gfx950")
    assert (count_runs, capsys.readouterr().out) == (["smoke"], "")


@pytest.mark.parametrize("fact", ["arch", "flags", "tier", LIBRARY_SHA256, PROGRAM, "kernels"])
def test_counters_of_other_build_or_program_are_measured_anew(tmp_path: Path, count_runs: list[str], fact: str) -> None:
    """``kernels`` is a fact of counts for which a person chose the kernels: `ckpm measure --kernel`."""
    library, file = manifests.write_library(tmp_path, manifests.document({})), tmp_path / "counters.json"
    stored = demand_counters(library, LISTED, "gfx950")
    other = dataclasses.replace(with_counts(instructions=1), kernel="other")
    Measurements(provenance={**stored.provenance, fact: "other"}, problems=(other,)).write(file)
    assert demand_counters(library, LISTED, "gfx950") == stored == Measurements.read(file)
    assert count_runs == ["smoke", "smoke"]


def test_damaged_counters_are_measured_anew(tmp_path: Path, count_runs: list[str]) -> None:
    library, file = manifests.write_library(tmp_path, manifests.document({})), tmp_path / "counters.json"
    file.write_text("{")
    assert demand_counters(library, LISTED, "gfx950") == Measurements.read(file)
    assert count_runs == ["smoke"]


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """A library whose suite passed: two cases of one kernel, one of another, and a known fault without counts."""
    library = tmp_path / "libckpm.so"
    library.write_bytes(b"library")
    cases = tuple(case(kernel=kernel, instructions=n) for kernel, n in (("k", 100), ("k", 20), ("m", 7), ("m", 0)))
    facts = {"device": "emulator", "tier": "smoke", LIBRARY_SHA256: hashlib.sha256(b"library").hexdigest()}
    Results(cases, facts, {"m": ["0x40 s_branch:"], "n": ["0x80", "0x90"]}).write(tmp_path / "batch-prefill.json")
    return library


def test_suite_counts_are_summed_by_kernel(ran: Path) -> None:
    assert emulated_gate.no_suite_counts(ran) == ""
    assert emulated_gate.count_suite(ran) == {
        "k": {"suite_cases": 2, "suite_instructions": 120, "suite_blocks": 0},
        "m": {"suite_cases": 1, "suite_instructions": 7, "suite_blocks": 1},
        "n": {"suite_cases": 0, "suite_instructions": 0, "suite_blocks": 2},
    }


def test_suite_counts_one_more_instruction_regresses(ran: Path) -> None:
    accepted, thresholds = emulated_gate.count_suite(ran), read_thresholds(SUITES)
    more = {**accepted, "k": {**accepted["k"], "suite_instructions": 121}}
    (changed,) = (row for row in compare(SUITES, accepted, more, thresholds) if row.verdict != "unchanged")
    assert (changed.subject, changed.metric, changed.verdict) == ("k", "suite_instructions", "regressed")


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (None, "was not run"),
        ({LIBRARY_SHA256: "0ld"}, "on another build"),
        ({"device": "hip"}, "not run whole"),
        ({"tier": "full"}, "not run whole"),
        ({SOME_CASES: "batch-prefill/a*"}, "not run whole"),
    ],
)
def test_suite_counts_other_run_is_left_out(ran: Path, facts: dict[str, str] | None, why: str) -> None:
    file = ran.with_name("batch-prefill.json")
    if facts is None:
        file.unlink()
    else:
        results = Results.read(file)
        dataclasses.replace(results, facts={**results.facts, **facts}).write(file)
    assert why in emulated_gate.no_suite_counts(ran)


def test_model_table_names_bounds_and_limits(tmp_path: Path, run: Run) -> None:
    measurements(ONE).write(tmp_path / "counters.json")
    code, out, _ = run("model", tmp_path / "counters.json")
    assert code == 0
    assert "x on gfx950 (MI355X)" in out
    assert all(f"- {line}" in out for line in cannot_see())


def test_model_against_compares_common_problems(tmp_path: Path, run: Run) -> None:
    candidate_file, baseline_file = tmp_path / "ours.json", tmp_path / "theirs.json"
    alone = dataclasses.replace(ONE, problem="performance/alone")
    # half as many instructions in all, and a wave's 100 SALU ones of 4 cycles are 25 more of 4 each
    measurements(with_counts(instructions=430, instructions_salu=300), alone).write(candidate_file)
    measurements(ONE).write(baseline_file)
    code, out, _ = run("model", candidate_file, "--against", baseline_file)
    assert code == 0
    (row,) = (line.split() for line in out.splitlines() if line.startswith("one"))
    serial = [
        estimate(measured, machines()["gfx950"]).units["serial"]
        for measured in (with_counts(instructions_salu=300), ONE)
    ]
    assert serial[0] - serial[1] == 200 / 8 * 4
    assert row[1:5] == ["430", "-50.00%", f"{serial[0]:.0f}", f"{serial[0] / serial[1] - 1:+.2%}"]


def test_model_against_foreign_file_is_refused(tmp_path: Path, run: Run) -> None:
    first, other = tmp_path / "first", tmp_path / "other"
    measurements(ONE).write(first)
    alone, moved = measurements(dataclasses.replace(ONE, problem="performance/alone")), measurements(ONE)
    moved = dataclasses.replace(moved, provenance={**moved.provenance, "arch": "gfx942"})
    for counts, complaint in ((alone, "share no problem"), (moved, "one file is of gfx950, the other of gfx942")):
        counts.write(other)
        code, _, err = run("model", first, "--against", other)
        assert (code, complaint in err) == (InconclusiveError.exit_code, True)


@pytest.mark.parametrize(
    ("upstream", "ran", "complaint"),
    [
        ("flash-attn", False, None),
        ("flash-attn", True, "performance/features.drop passes, but ledger.yaml"),
        ("aiter", False, "performance/features.drop: the launch failed: past the end"),
    ],
)
def test_known_defect_is_left_out_and_told(
    monkeypatch: pytest.MonkeyPatch, upstream: str, ran: bool, complaint: str | None
) -> None:
    fault = None if ran else SimpleNamespace(message="past the end")
    outcome = SimpleNamespace(ran=ran, fault=fault, launch=SimpleNamespace(message="", kernel="k"), counters={})
    monkeypatch.setattr(launching, "run_problem", lambda *_: outcome)
    monkeypatch.setattr(buffers, "prepare", lambda *_: None)
    recovered: list[bool] = []
    device = SimpleNamespace(arch="gfx950", recover=lambda: recovered.append(True))
    (problem,) = (problem for problem in performance_problems("smoke") if problem.name == "performance/features.drop")
    if complaint:
        with pytest.raises(InconclusiveError, match=complaint):
            _count_launch(device, LOADED, problem, None, manifests.record(upstream=upstream), None)
    else:
        reason = _count_launch(device, LOADED, problem, None, manifests.record(upstream=upstream), None)
        assert isinstance(reason, str)
        assert reason.startswith("fault: ")
        assert "dropout-writes-past-lds, ledger.yaml" in reason
    assert bool(recovered) == (complaint is None)

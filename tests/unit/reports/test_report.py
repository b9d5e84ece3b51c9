"""The report has the content of its inputs, is one small file, and never passes with a damaged or missing input."""

from __future__ import annotations

import csv
import dataclasses
import datetime
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import ckpm
from ckpm.attention.launch.counters import METRICS, Measured, Measurements
from ckpm.base.errors import CheckFailedError, InconclusiveError, UsageError
from ckpm.base.outputs import write_output
from ckpm.base.results import LIBRARY_SHA256, SOME_CASES, CaseResult, Results
from ckpm.matrix.names import short_name
from ckpm.matrix.problems.case import BATCH_CHECKS
from ckpm.matrix.problems.ledger import LEDGER
from ckpm.reports.page import case_tables
from ckpm.reports.page import commands as report_commands
from ckpm.reports.page.html import html, provenance
from ckpm.reports.page.inputs import ReportInputs, gather, measured_seconds
from ckpm.reports.page.markdown import markdown
from ckpm.reports.page.measurements import COLUMNS, write_measurements
from ckpm.reports.page.overall import overall
from ckpm.reports.page.plots import plots
from ckpm.reports.page.sections import tables
from ckpm.reports.verdicts import Gate, Samples
from tests.unit import manifests
from tests.unit.manifests import write_library
from tests.unit.reports.report_samples import AGREES, FACTS, KERNEL, KNOWN, PROBLEM, SLOWER, case, manifest, write
from tests.unit.shared import Run

NOW = datetime.datetime(2026, 11, 20, 12, 0, tzinfo=datetime.UTC)
COMPARED = "batch-prefill/invariance.m64-full"
FAILED = case("batch-prefill/plain.m64-full-q1k1", "failed", "O differs | </script><script>alert(1)</script>")
SKIPPED = case("batch-prefill/plain.m64-full-q1k1", "skipped", "no kernel", kernel="")


def inputs(folder: Path, **arguments: Any) -> ReportInputs:
    """Without the repository's own baselines, and on a day when no ledger entry has expired."""
    return gather(folder, **{"today": datetime.date(2026, 11, 20), "baselines": folder / "none", **arguments})


@pytest.fixture(autouse=True)
def _commands_read_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_commands, "gather", inputs)


def document(report_inputs: ReportInputs) -> str:
    return html(report_inputs, overall(report_inputs), NOW)


def shown(text: str) -> dict[str, list[list[Any]]]:
    """The rows that the page's script shows, by table."""
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])  # type: ignore[index]
    strings = data["strings"]
    rows = {}
    for name, table in data["tables"].items():
        columns = [
            cells if column["kind"] == "number" else [strings[cell] for cell in cells]
            for column, cells in zip(table["columns"], table["cells"], strict=True)
        ]
        rows[name] = [list(row) for row in zip(*columns, strict=True)]
        rows[f"{name} details"] = [[int(at), *(strings[n] for n in lines)] for at, lines in table["details"].items()]
    return rows


def test_page_holds_every_row_and_verdict_comes_first(tmp_path: Path) -> None:
    report_inputs = inputs(
        write(tmp_path, {"batch-prefill": [case(tolerance_used=0.19), FAILED], "page-fault": [KNOWN]})
    )
    text = document(report_inputs)
    rows = shown(text)
    for table in tables(report_inputs):
        assert rows.get(table.id, []) == [list(row) for row in table.rows], table.id
    # the worst first
    assert [row[:2] for row in rows["cases"]] == [
        ["✗ failed", FAILED.name],
        ["≈ known defect", KNOWN.name],
        ["✓ passed", PROBLEM],
    ]
    assert [rows["cases"][2][at] for at in (3, -1)] == [0.19, KERNEL]
    assert rows["kernels"][0][:6] == ["○ no gate", KERNEL, "gfx950", "aiter", 200, 0]
    assert ["✓ passed", "batch-prefill", "page_order", "scrambled", 1, 1, 0, 0, 0, 0] not in rows["axes"]  # 2 cases
    assert ["✗ failed", "batch-prefill", "tile_rows", "64", 2, 1, 0, 0, 1, 0] in rows["axes"]
    assert [row[5] for row in rows["ledger"] if row[1] == "table-read-past-end"] == [1]
    order = [text.index(f'<section id="{name}"') for name in ("kernels", "axes", "faults", "ledger", "empty")]
    assert text.index("<h1") < order[0]
    assert order == sorted(order)


@pytest.mark.parametrize(
    ("cases", "row"),
    [
        ([case(PROBLEM)], ["○ skipped", 0]),
        ([case(PROBLEM, same_batches=("batch_invariance",))], ["○ skipped", 0]),
        ([case(PROBLEM, same_batches=BATCH_CHECKS), case(COMPARED, same_batches=BATCH_CHECKS)], ["✓ passed", 2]),
        ([case(PROBLEM, same_batches=BATCH_CHECKS), case(COMPARED, "failed", "bits")], ["✗ failed", 2]),
        ([case(COMPARED, same_batches=BATCH_CHECKS, kernel="another")], ["○ skipped", 0]),
    ],
)
def test_kernel_holds_batches_only_if_cases_compared_it(
    tmp_path: Path, cases: list[CaseResult], row: list[object]
) -> None:
    table_rows = shown(document(inputs(write(tmp_path, {"batch-prefill": cases}))))["batch-invariance"]
    assert table_rows == [[row[0], KERNEL, "gfx950/aiter", row[1]]]


def test_head_names_libraries_and_empty_sections_are_one_line(tmp_path: Path) -> None:
    text = document(inputs(write(tmp_path, {"batch-prefill": [case(PROBLEM)]})))
    title = text.partition("<title>")[2].partition("</title>")[0]
    assert title.endswith(": gfx950/aiter, CK FMHA batch prefill")
    head = text.partition("<h1")[2].partition("<table>")[0]
    assert f"by ckpm {ckpm.__version__}" in head
    assert "gfx950/aiter: 1 kernel of amd-aiter" in head
    (line,) = [line for line in text.splitlines() if line.startswith("<p>No results of: ")]
    assert '<span id="parity">Parity with upstream' in line  # the check "parity: not run" leads there
    assert "Faults" not in line  # no case had one
    targets = set(re.findall(r' id="([^"]+)"', text))
    assert set(re.findall(r'href="#([^"]+)"', text)) <= targets


def test_fault_is_reported_decoded(tmp_path: Path) -> None:
    rows = shown(document(inputs(write(tmp_path))))
    (row,) = rows["faults"]
    assert row[2:5] == [
        "load of 4 bytes outside; nearest: 12 bytes past the end of allocation 245", "global_load_dword(v[8])", "0x480",
    ]  # fmt: skip
    assert row[5] == "table-read-past-end"
    assert "address: 0x10f4872f5010" in rows["faults details"][0]
    assert "nearest base: 0x10f4872f5000" in rows["faults details"][0]


def test_page_needs_no_network_and_escapes_inputs(tmp_path: Path) -> None:
    text = document(inputs(write(tmp_path, {"batch-prefill": [FAILED]}, [SLOWER])))
    for outside in (" src=", "@import", "url(", "<script>alert", 'rel="stylesheet"'):
        assert outside not in text
    assert [address for address in re.findall(r'href="([^"]*)"', text) if not address.startswith("#")] == ["data:,"]
    assert "prefers-color-scheme: dark" in text


def test_thousands_of_cases_stay_small(tmp_path: Path) -> None:
    folder = write(tmp_path, {})
    library_folder = folder / "gfx950" / "aiter"
    kernels = manifest(600)
    (library_folder / "manifest.json").write_text(json.dumps(kernels))
    names = list(kernels["kernels"])
    many = [
        case(f"batch-prefill/cross.some-long-name-q{n}k{n}", "passed", "", AGREES, kernel=names[n % 600])
        for n in range(4000)
    ]
    Results(tuple(many)).write(library_folder / "batch-prefill.json")
    # a tenth of 6,000 kernels and 40,000 cases, which shall fit 10 MB
    assert len(document(inputs(folder)).encode()) < 1_000_000


def test_texts_beyond_budget_are_replaced_by_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_tables, "TEXT_BUDGET", 1000)
    folder = write(
        tmp_path, {"batch-prefill": [case(f"batch-prefill/c{n}", "failed", "", f"{n}" * 600) for n in (1, 2)]}
    )
    first, second = shown(document(inputs(folder)))["cases details"]
    assert "1" * 600 in first
    assert second[1].endswith(f"read it in {folder / 'gfx950/aiter/batch-prefill.json'}")


INCONCLUSIVE = dataclasses.replace(SLOWER, verdict="inconclusive")


@pytest.mark.parametrize(
    ("cases", "rows", "verdict"),
    [
        ([case()], [], "passed"),
        ([KNOWN], [dataclasses.replace(SLOWER, verdict="unchanged")], "passed"),
        ([case(), FAILED], [], "failed"),
        ([case(), case(outcome="error")], [], "failed"),
        ([SKIPPED], [], "not run"),
        ([], [], "not run"),
        ([case()], [SLOWER], "failed"),
        ([case()], [INCONCLUSIVE], "inconclusive"),
        ([case()], [dataclasses.replace(SLOWER, verdict="missing", candidate=None)], "failed"),
        ([FAILED], [INCONCLUSIVE], "failed"),
    ],
)
def test_verdict_follows_cases_and_rows(
    tmp_path: Path, run: Run, cases: Sequence[CaseResult], rows: list[Any], verdict: str
) -> None:
    folder = write(tmp_path, {"batch-prefill": list(cases)}, rows)
    assert overall(inputs(folder)).verdict == verdict
    assert run("report", "--input", folder)[0] == (0 if verdict == "passed" else 8)


def test_table_of_kernels_keeps_names_whole_on_narrow_terminal(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for setting, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "90"}.items():
        monkeypatch.setenv(setting, value)
    library = write_library(tmp_path, manifest())
    code, out, _ = run("report", "--manifest", library.with_name("manifest.json"))
    assert (code, short_name(KERNEL) in out) == (0, True)


def test_gate_against_own_baselines_names_their_folder(tmp_path: Path) -> None:
    folder = write(tmp_path, {"batch-prefill": [case()]})
    passing = dataclasses.replace(SLOWER, verdict="unchanged")
    facts = {"arch": "gfx950", "upstream": "aiter", "baselines": "build/mine"}
    Gate.of([passing], facts).write(folder / "gfx950/aiter/gate.json")
    (row,) = [check for check in overall(inputs(folder)).checks if check.name == "gate gfx950/aiter/gate"]
    assert row.text.endswith(", against the baselines of build/mine")


def test_row_of_suite_has_reasons_of_skipped_cases(tmp_path: Path) -> None:
    folder = write(tmp_path, {"batch-prefill": []})
    reasons = "pages of 16 and 1024 (1,204), fp8bf16 (610); --upstream ckpm serves 1,700 of the 1,814"
    results = Results((case(), SKIPPED), {"device": "emulator", "unsupported": reasons})
    results.write(folder / "gfx950/aiter/batch-prefill.json")
    (row,) = [
        check for check in overall(inputs(folder)).checks if check.name.startswith("batch-prefill of gfx950/aiter")
    ]
    assert (row.verdict, row.text) == ("passed", f"1 passed, 1 skipped; skipped: {reasons}")


def test_what_was_not_run_is_named(tmp_path: Path) -> None:
    """Suites of table problems, for a library of fwd its suite of kernels, parity and the gate."""
    folder = write(tmp_path)
    others = "large-kv, dispatch, sanitize of gfx950/aiter"
    assert overall(inputs(folder)).headline == f"passed; not run: {others}, parity, gate of aiter on gfx950"
    write_library(folder / "gfx950" / "aiter-fwd", manifest())
    passing = dataclasses.replace(SLOWER, verdict="unchanged")
    Gate.of([passing], {"arch": "gfx950", "upstream": "aiter"}).write(folder / "gfx950/aiter/gate.json")
    left = f"not run: {others}, suites of gfx950/aiter-fwd, parity, gate of aiter-fwd on gfx950"
    assert overall(inputs(folder)).headline.endswith(left)
    (folder / "gfx950/aiter/large-kv.json").write_text("{}")
    assert "not run: dispatch, sanitize of gfx950/aiter" in overall(inputs(folder)).headline  # the damaged file failed


def test_commands_of_what_was_not_run_name_library_and_output(tmp_path: Path) -> None:
    folder = write(tmp_path / "build")
    write_library(folder / "gfx942/aiter-fwd", manifest() | {"archs": ["gfx942"]})
    assert {
        check.text.partition(": ")[2] for check in overall(inputs(folder)).checks if check.verdict == "not run"
    } == {
        "ckpm test --suite large-kv --arch gfx950 --upstream aiter",
        "ckpm test --suite kernels --arch gfx942 --upstream aiter --family fwd",
        "ckpm gate --arch gfx950 --upstream aiter",
        "ckpm gate --arch gfx942 --upstream aiter --family fwd",
        f"ckpm parity --output {folder}/parity.json",
    }


def test_parity_of_another_tree_is_not_counted(tmp_path: Path) -> None:
    folder = write(tmp_path)
    cases = (case("names/a"),)
    Results(cases, {"aiter": manifest()["upstream_identity"], "flash-attn": "2"}).write(folder / "parity.json")
    assert "parity: passed" in [f"{check.name}: {check.verdict}" for check in overall(inputs(folder)).checks]
    Results(cases, {"aiter": "amd-aiter 2"}).write(folder / "parity.json")
    rows = [check for check in overall(inputs(folder)).checks if "parity" in check.name]
    assert [(row.name, row.verdict) for row in rows] == [(f"{folder}/parity.json", "failed")]
    assert rows[0].text.endswith(f"Run it again: ckpm parity --output {folder}/parity.json")


def test_gate_without_its_library_is_not_counted(tmp_path: Path) -> None:
    folder = write(tmp_path, {})
    facts = {
        "arch": "gfx950",
        "upstream": "aiter",
        f"candidate {LIBRARY_SHA256}": manifest()["artifacts"]["libckpm.so"],
    }
    Gate.of([dataclasses.replace(SLOWER, verdict="unchanged")], facts).write(folder / "gfx950/aiter/gate.json")
    assert overall(inputs(folder)).verdict == "passed"
    (folder / "gfx950/aiter/manifest.json").unlink()
    conclusion = overall(inputs(folder))
    assert conclusion.headline.startswith(f"failed: {folder}/gfx950/aiter/gate.json")
    assert "manifest.json is missing" in conclusion.checks[0].text


def test_gate_that_is_not_counted_is_one_row(tmp_path: Path) -> None:
    folder = write(tmp_path)
    facts = {"arch": "gfx950", "upstream": "aiter", f"candidate {LIBRARY_SHA256}": "0"}
    Gate.of([SLOWER], facts).write(folder / "gfx950/aiter/gate.json")
    (row,) = [check for check in overall(inputs(folder)).checks if "gate" in check.name]
    assert row.text.endswith("Run ckpm gate --arch gfx950 --upstream aiter again.")


def test_part_of_suite_names_cases_and_what_was_not_run(tmp_path: Path) -> None:
    folder = write(tmp_path)
    facts = {"device": "emulator", SOME_CASES: "dispatch/chosen*"}
    Results((case("dispatch/chosen.plain-bf16"),), facts).write(folder / "gfx950/aiter/dispatch.json")
    verdict, name = overall(inputs(folder)), "other cases of dispatch of gfx950/aiter on the emulator"
    assert verdict.headline.startswith(f"passed; not run: {name}, large-kv, sanitize of gfx950/aiter, ")
    (row,) = (check for check in verdict.checks if check.name == name)
    assert (row.verdict, row.text) == ("not run", "only cases dispatch/chosen* were run")


def test_expired_entry_of_ledger_is_not_pass(tmp_path: Path) -> None:
    conclusion = overall(inputs(write(tmp_path), today=datetime.date(2099, 1, 1)))
    assert conclusion.verdict == "failed"
    assert "ledger" in conclusion.headline


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gfx950/aiter/page-fault.json", '{"format": 1, "cases": ['),
        ("gfx950/aiter/manifest.json", "{}"),
        ("gfx950/aiter/gate.json", '{"verdict": "unchanged", "provenance": {}, "rows": []}'),
        ("gfx950/aiter/counters.json", "{}"),
        ("parity.json", ""),
        ("gfx942/aiter/large-kv.json", "{}"),
    ],
)
def test_report_damaged_input_is_row_and_fails(tmp_path: Path, run: Run, name: str, text: str) -> None:
    folder = write(tmp_path / "build")
    output = tmp_path / "report.html"
    assert run("report", "--input", folder, "--html", output)[0] == 0
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    summary = tmp_path / "report.md"
    write_output(summary, b"an earlier run's")
    code, _, printed = run("report", "--input", folder, "--html", output, "--output", summary)
    assert code == CheckFailedError.exit_code
    assert f"failed: {folder / name}: not counted: " in printed
    assert printed.endswith(f"report: {summary}\nreport: {output}\n")
    assert all("not counted: " in page.read_text() for page in (summary, output))


def test_report_without_input_or_output_fails(tmp_path: Path, run: Run) -> None:
    (tmp_path / "file").touch()
    folder = write(tmp_path / "build")
    assert run("report", "--input", tmp_path / "none", "--html", tmp_path / "a.html")[0] == 9
    for output in (tmp_path / "file" / "a.html", folder):
        code, _, err = run("report", "--input", folder, "--html", output)
        assert (code, "can't be written" in err) == (10, True)


@pytest.mark.parametrize(
    ("epoch", "shown"), [("0", "1970-01-01 00:00"), ("1795305600", "2026-11-22 00:00"), ("soon", "2"), ("9" * 30, "2")]
)
def test_report_is_of_time_that_environment_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run, epoch: str, shown: str
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    folder = write(tmp_path / "build")
    assert run("report", "--input", folder, "--html", tmp_path / "a.html")[0] == 0
    assert f"written {shown}" in (tmp_path / "a.html").read_text()


def test_provenance_is_same_in_every_folder(tmp_path: Path) -> None:
    """The report of a release's bundle names the ledger by its content, and no folder of this machine."""
    ledgers = [tmp_path / folder / "ledger.yaml" for folder in ("one", "two")]
    for ledger in ledgers:
        ledger.parent.mkdir()
        ledger.write_bytes(LEDGER.read_bytes())
    folder = write(tmp_path / "build")
    first, second = (provenance(inputs(folder, ledger=ledger)) for ledger in ledgers)
    assert first == second
    assert hashlib.sha256(LEDGER.read_bytes()).hexdigest() in dict(dict(first)["known defects"])["ledger"]


def test_summary_is_printed_and_added_to_step(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    step = tmp_path / "step.md"
    step.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(step))
    folder = write(tmp_path / "build", {"batch-prefill": [case(), FAILED]}, [SLOWER])
    code, text, _ = run("report", "--input", folder, "--output", tmp_path / "summary.md")
    assert code == 8
    assert step.read_text() == "before\n" + text
    assert (tmp_path / "summary.md").read_text() == text
    assert text.startswith("## ✗ CK FMHA batch prefill: failed: ")
    assert "O differs \\| &lt;/script>" in text
    assert "regressed: time: 4 -> 5 us (allowed: 2 %): batch-prefill/plain.m64-full-q64k128" in text
    assert "| gfx950/aiter | 1 | 0 | batch-prefill | 1 | 0 | 0 | 1 | 0 |" in text


def test_long_list_ends_with_count(tmp_path: Path) -> None:
    cases = [case(f"batch-prefill/c{n}", "failed", "x" * 5000) for n in range(400)]
    report_inputs = inputs(write(tmp_path, {"batch-prefill": cases}))
    text = markdown(report_inputs, overall(report_inputs))
    assert len(text) < 65_536  # what GitHub takes
    assert "- and 385 more: see the report" in text


def test_measurements_have_tile_engines_columns(tmp_path: Path) -> None:
    report_inputs = inputs(write(tmp_path, rows=[SLOWER]))
    output = tmp_path / "table.csv"
    write_measurements(report_inputs, output)
    with output.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    start = (
        "problem_name,batch,seqlen_q,seqlen_k,nhead_q,nhead_k,hdim_q,hdim_v,dtype,kernel,family,mode,pipeline,tile_m0"
    )
    assert ",".join(COLUMNS).startswith(start)
    row = next(row for row in rows if row["problem_name"] == PROBLEM)
    printed = ("seqlen_q", "seqlen_k", "nhead_q", "hdim_v", "dtype", "tile_m0", "warp_k1", "lse")
    assert [row[name] for name in printed] == ["64", "128", "2", "128", "bf16", "64", "16", "false"]
    # in 5 microseconds two gemms of 64 x 128 x 128 for two heads; Q and O of two heads, K and V of one
    assert float(row["latency_ms"]) == pytest.approx(0.005)
    assert float(row["tflops"]) == pytest.approx(2 * 2 * 64 * 128 * 128 * 2 / 5e-6 / 1e12)
    assert float(row["bandwidth_gb_s"]) == pytest.approx((2 * 64 * 128 * 2 * 2 + 2 * 128 * 128 * 2) / 5e-6 / 1e9)
    unmeasured = next(row for row in rows if row["problem_name"] == KNOWN.name)
    assert (unmeasured["latency_ms"], unmeasured["outcome"]) == ("", "known defect")
    write_measurements(report_inputs, tmp_path / "table.json")
    stored = json.loads((tmp_path / "table.json").read_text())
    assert [list(row) for row in stored["results"]] == [list(COLUMNS)] * len(rows)
    assert stored["metadata"]["total_measurements"] == 1
    with pytest.raises(UsageError, match=r"\.csv or \.json"):
        write_measurements(report_inputs, tmp_path / "table.txt")


def test_times_of_emulator_are_not_measurements(tmp_path: Path) -> None:
    folder = write(tmp_path)
    for gpu, seconds in (("emulated gfx950", {}), ("AMD Instinct MI355X", {PROBLEM: 5e-6})):
        Gate.of([SLOWER], {"arch": "gfx950", "gpu": gpu}).write(folder / "gfx950/aiter/gate.json")
        report_inputs = inputs(folder)
        assert measured_seconds(report_inputs, report_inputs.libraries[0], "gfx950") == pytest.approx(seconds)


def test_model_shows_measured_beside_modelled_time(tmp_path: Path) -> None:
    """Expect one round of 16 workgroups of 4 waves, one for each SIMD: 240,000 / 64 = 3750 cycles of MFMA in each wave.

    That is 1.5625 us at 2400 MHz. 1 MB at 8 TB/s takes 0.125 us.
    """
    folder, library_folder = write(tmp_path), tmp_path / "gfx950" / "aiter"
    Gate.of([SLOWER], {"arch": "gfx950", "gpu": "AMD Instinct MI355X"}).write(library_folder / "gate.json")
    counts = {
        **dict.fromkeys(METRICS, 0), "workgroups": 16, "waves": 64, "mfma_flops": 1_000_000, "mfma_cycles": 240_000,
    }  # fmt: skip
    measured = Measured(
        problem=PROBLEM, kernel=KERNEL, dtype="bf16", occupancy_waves=2, compulsory_bytes=1_000_000, counters=counts
    )
    facts = {**FACTS, "arch": "gfx950", "tier": "smoke"}
    Measurements(provenance=facts, problems=(measured,)).write(library_folder / "counters.json")
    (table,) = (table for table in tables(inputs(folder)) if table.id == "model")
    (row,) = (dict(zip((column.name for column in table.columns), row, strict=True)) for row in table.rows)
    assert (row["modelled us"], row["measured us"]) == (1.5625, 5.0)


def test_counts_of_this_build_are_shown(tmp_path: Path) -> None:
    folder = write(tmp_path)
    library_folder = folder / "gfx950" / "aiter"
    measured = Measured(
        problem=PROBLEM, kernel=KERNEL, dtype="bf16", occupancy_waves=2, compulsory_bytes=131072,
        counters=dict.fromkeys(METRICS, 1000) | {"workgroups": 2, "early_out_workgroups": 0, "waves": 8},
    )  # fmt: skip
    provenance = {**FACTS, "arch": "gfx950", "tier": "smoke"}
    Measurements(provenance=provenance, problems=(measured,)).write(library_folder / "counters.json")
    report_inputs = inputs(folder)
    (row,) = shown(document(report_inputs))["model"]
    assert [*row[:2], row[-1]] == [PROBLEM, "gfx950/aiter", KERNEL]
    assert "cannot see" in document(report_inputs)
    (roofline,) = plots(report_inputs)
    assert PROBLEM in roofline.svg
    Measurements(provenance={**provenance, "flags": "-O1"}, problems=(measured,)).write(
        library_folder / "counters.json"
    )
    (uncounted,) = inputs(folder).uncounted
    assert uncounted.file == library_folder / "counters.json"
    assert re.match("made from another build .* flags differs", uncounted.reason)
    Measurements(provenance={**provenance, LIBRARY_SHA256: "0ld"}, problems=(measured,)).write(uncounted.file)
    assert "library sha256 differs" in inputs(folder).uncounted[0].reason


def test_what_is_excused_from_budget_is_reported(tmp_path: Path) -> None:
    excused = dataclasses.replace(
        SLOWER, gate="static", subject=KERNEL, metric="vgpr_spills", unit="registers", baseline=None, candidate=8.0,
        threshold="at most 0, budget no-spills", verdict="unchanged", note="allowed until 2027-06-30: no room (a, b:1)",
    )  # fmt: skip
    late = dataclasses.replace(excused, metric="scratch_bytes", candidate=36.0, verdict="regressed", note="expired")
    loop = dataclasses.replace(
        excused, metric="loop_mfma", baseline=64.0, candidate=64.0, threshold="no change", note=""
    )
    rows = shown(document(inputs(write(tmp_path, rows=[excused, late, loop]))))
    (row,) = rows["kernels"]
    assert (row[0], row[-1]) == (
        "✗ regressed",
        "vgpr_spills 8 (at most 0): allowed until 2027-06-30; scratch_bytes 36 (at most 0): regressed",
    )
    assert rows["kernels details"] == [
        [0, f"vgpr_spills: {excused.note}", "scratch_bytes: expired", "instructions of the hot loop: mfma 64"]
    ]
    assert [row[3] for row in rows["figures"]] == ["scratch_bytes", "vgpr_spills"]  # the unchanged mix is left out


def test_results_tell_their_device_and_belong_to_library(tmp_path: Path) -> None:
    folder = write(tmp_path)
    library_folder = folder / "gfx950" / "aiter"
    (library_folder / "manifest.json").write_text(json.dumps({**manifest(), "library": "libckpm.so"}))
    facts = {"device": "emulator", LIBRARY_SHA256: manifest()["artifacts"]["libckpm.so"]}
    Results((case(),), facts).write(library_folder / "batch-prefill.json")
    report_inputs = inputs(folder)
    assert "batch-prefill of gfx950/aiter on the emulator" in [check.name for check in overall(report_inputs).checks]
    assert "device emulator" in dict(provenance(report_inputs)[0][1])["suite batch-prefill"]
    Results((case(),), {**facts, LIBRARY_SHA256: "0ld"}).write(library_folder / "batch-prefill.json")
    stale = inputs(folder)
    (uncounted,) = stale.uncounted
    assert re.match("results of another build .* --suite batch-prefill --arch", uncounted.reason)
    assert "batch-prefill" not in {tested.suite for tested in stale.cases}
    assert overall(stale).verdict == "failed"


def test_gate_and_times_of_library_built_again_are_not_counted(tmp_path: Path) -> None:
    folder, built = write(tmp_path / "build"), manifest()["artifacts"]["libckpm.so"]
    times = {"arch": "gfx950", "gpu": "AMD Instinct MI355X", "candidate": str(folder / "gfx950/aiter/libckpm.so")}
    for sha256, seconds in ((built, {PROBLEM: 5e-6}), ("0ld", {})):
        Gate.of([SLOWER], {**times, "candidate library sha256": sha256}).write(folder / "gpu.json")
        report_inputs = inputs(folder)
        assert measured_seconds(report_inputs, report_inputs.libraries[0], "gfx950") == pytest.approx(seconds)
    (uncounted,) = report_inputs.uncounted
    assert re.match("made from another build .* library sha256 differs. Run ckpm compare again", uncounted.reason)


def test_gate_is_of_library_that_it_names(tmp_path: Path) -> None:
    """A release of the full tier has beside its library the gate of the smoke tier, built in a folder of its own."""
    folder, smoke = write(tmp_path / "build"), tmp_path / "build/gated/build/gfx950/aiter"
    other = manifests.document({KERNEL: {}}, artifacts={"libckpm.so": "5m0ke"})
    write_library(smoke, other)
    facts = {"arch": "gfx950", "upstream": "aiter", "candidate": "../../gated/build/gfx950/aiter/libckpm.so"}
    passing = dataclasses.replace(SLOWER, verdict="unchanged")
    gate = Gate.of([passing], {**facts, "candidate library sha256": "5m0ke"})
    gate.write(folder / "gfx950/aiter/gate.json")
    assert inputs(folder).uncounted == ()
    write_library(smoke, {**other, "artifacts": {"libckpm.so": "an other build"}})
    assert len(inputs(folder).uncounted) == 1
    for no_path in ("/", "\0", "x" * 5000):
        dataclasses.replace(gate, provenance={**gate.provenance, "candidate": no_path}).write(
            folder / "gfx950/aiter/gate.json"
        )
        (uncounted,) = inputs(folder).uncounted  # the gate is read as that of the library beside it
        assert uncounted.reason.endswith("Run ckpm gate --arch gfx950 --upstream aiter again.")


def test_results_of_another_library_of_fwd_name_its_family(tmp_path: Path) -> None:
    """A library of fwd's families is in a folder of that name, and its suite's results are read as others."""
    library_folder = write(tmp_path) / "gfx950" / "aiter-fwd_v3"
    library_folder.mkdir()
    (library_folder / "manifest.json").write_text(json.dumps({**manifest(), "library": "libckpm.so"}))
    Results((case(),), {LIBRARY_SHA256: manifest()["artifacts"]["libckpm.so"]}).write(library_folder / "kernels.json")
    assert "kernels of gfx950/aiter-fwd_v3" in [
        check.name for check in overall(inputs(library_folder.parents[1])).checks
    ]
    Results((case(),), {LIBRARY_SHA256: "0ld"}).write(library_folder / "kernels.json")
    (uncounted,) = inputs(library_folder.parents[1]).uncounted
    assert re.search(r"--suite kernels --arch gfx950 --upstream \S+ --family fwd_v3$", uncounted.reason)


def test_plots_tell_verdict_by_shape(tmp_path: Path) -> None:
    history = tmp_path / "accepted" / "gfx950" / "embedded" / "aiter.history.jsonl"
    history.parent.mkdir(parents=True)
    lines = [
        {
            "date": f"2026-11-{day}T00:00:00Z",
            "gate": "static",
            "reason": "<new>",
            "identity": "clang 1",
            "upstream_identity": "aiter 1",
            "subjects": 1,
            "sums": {"vgpr": 2300 + day, "lds": day, "agpr": 7},
        }
        for day in (18, 19)
    ]
    history.write_text("".join(json.dumps(line) + "\n" for line in lines))
    folder = write(tmp_path / "build", rows=[SLOWER])
    ratios, roofline, accepted = plots(inputs(folder, baselines=tmp_path / "accepted"))
    assert "1.250" in ratios.svg
    assert "L0,-6 Z" in ratios.svg  # a triangle that points up
    assert "MI355X" in roofline.title
    assert "2,319" in accepted.svg
    assert "+1<" in accepted.svg  # a step up, by one
    assert "agpr" not in accepted.svg  # it never changed
    assert "&lt;new&gt;" in accepted.svg


def test_samples_of_gate_are_drawn(tmp_path: Path) -> None:
    """Three times of each arm; the slowest is 30 % above the baseline's mean."""
    folder = write(tmp_path)
    times = Samples(subject=PROBLEM, baseline=(4.0, 3.9, 4.1), candidate=(5.0, 5.1, 5.2), again=(4.0, 4.0, 4.0))
    Gate.of([SLOWER], {"arch": "gfx950"}, [times, dataclasses.replace(times, subject="no row")]).write(
        folder / "gpu.json"
    )
    _, samples, *_ = plots(inputs(folder))
    assert samples.title == "Samples of the gpu gate (gpu.json)"
    assert (samples.svg.count("point bad"), samples.svg.count("<circle")) == (3, 9)
    assert "±30.0%" in samples.svg
    assert "no row" not in samples.svg


def test_damaged_history_is_named(tmp_path: Path) -> None:
    history = tmp_path / "gfx950" / "embedded" / "aiter.history.jsonl"
    history.parent.mkdir(parents=True)
    history.write_text('{"date": "2026')
    with pytest.raises(
        InconclusiveError, match=r"aiter\.history\.jsonl:1: can't be read as a line of a baseline's history"
    ):
        inputs(write(tmp_path / "build"), baselines=tmp_path)


@pytest.mark.parametrize("figure", [5e-324, 1e-200, 1.7e308])
def test_figure_that_no_axis_holds_is_not_drawn(tmp_path: Path, figure: float) -> None:
    rows = [SLOWER, dataclasses.replace(SLOWER, subject="tiny", candidate=figure)]
    ratios, *_ = plots(inputs(write(tmp_path, rows=rows)))
    assert "1.250" in ratios.svg
    assert "tiny" not in ratios.svg


def test_history_of_upstream_that_is_pattern_is_absent(tmp_path: Path) -> None:
    library_folder = write(tmp_path / "build") / "gfx950" / "aiter"
    facts = json.loads((library_folder / "manifest.json").read_text())
    (library_folder / "manifest.json").write_text(json.dumps({**facts, "upstream": "a**b"}))
    for suite in ("batch-prefill", "page-fault"):
        (library_folder / f"{suite}.json").unlink()
    assert inputs(tmp_path / "build", baselines=tmp_path).history == {}

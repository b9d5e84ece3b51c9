"""The static gate: what makes it fail, with kernel and metric named, and what it can't be made to pass."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ckpm.base.errors import CheckFailedError, CodeObjectError, InconclusiveError, LibraryError, UsageError
from ckpm.base.files import StoppedError, hold_lock, write_atomically
from ckpm.kernels.code import code_object as codeobject
from ckpm.kernels.library.manifest import Manifest
from ckpm.reports.gates import baseline, gate_command, library_gates
from ckpm.reports.gates import static as static_gate
from ckpm.reports.gates.baseline import accept
from ckpm.reports.gates.comparing import compare, read_thresholds
from ckpm.reports.verdicts import STATIC, Gate, VerdictRow, demand, worst
from tests.unit import manifests
from tests.unit.shared import Run

PLAIN = "fmha_batch_prefill_d128_bf16_group_b64x128x64x128x64x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16_qr_async_vr_psskddv"
SMALL = f"{PLAIN}_nlogits_nbias_nmask_nlse_ndropout_nsquant"
MASKED = f"{PLAIN}_nlogits_nbias_mask_nlse_ndropout_nsquant"
ALIBI = f"{PLAIN}_nlogits_alibi_mask_lse_ndropout_nsquant"
FACTS = {
    "toolchain": "embedded",
    "identity": "embedded clang 1",
    "upstream": "aiter",
    "upstream_identity": "amd-aiter 1",
    "dialect": "ck-2025-11",
    "mask_impl": "simplified",
    "selection": "tier smoke",
}
FIGURES = {
    "vgpr": 200, "agpr": 0, "sgpr": 100, "vgpr_spills": 0, "sgpr_spills": 60, "scratch_bytes": 0, "lds_bytes": 52224,
    "text_bytes": 10000, "occupancy_waves": 2,
}  # fmt: skip
CODE: dict[str, Any] = {
    "unknown": 0,
    "loop": {"mfma": 128, "valu": 500, "scratch": 0},
    "hazards": (),
    "missing_states": (),
}
COMMANDS = [("gate",), ("accept", "--reason", "why")]
LOOP = {"loop_mfma": 128, "loop_valu": 500, "loop_scratch": 0, "wait_hazards": 0, "missing_states": 0}


def resources(symbol: str, **change: int) -> codeobject.KernelResources:
    """A kernel as in a code object."""
    return codeobject.KernelResources(
        symbol=symbol, arch="gfx950", kernarg_bytes=8, max_workgroup=256, wavefront=64, text_sha256=f"of {symbol}",
        **{**FIGURES, **change},
    )  # fmt: skip


class Library:
    """A built library in a work folder: the manifest is a file, the code objects are told by a stub."""

    def __init__(self, work: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
        self.command, self.work, self.kernels = run, work, {SMALL: resources("a"), MASKED: resources("b")}
        self.file = work / "build/gfx950/aiter/manifest.json"
        self.baselines = work / "baselines"
        self.code: dict[str, Any] = {}  # the emulator's findings on a symbol's machine code, if they are not CODE
        monkeypatch.setattr(codeobject, "inspect", lambda path, arch: self.inspect_code())
        monkeypatch.setattr(codeobject, "bundles", lambda path: {"gfx950": (b"image",)})
        monkeypatch.setattr(codeobject, "kernels", lambda image: list(self.kernels.values()))
        self.write()

    def inspect_code(self) -> dict[str, codeobject.KernelCode]:
        symbols = [kernel.symbol for kernel in self.kernels.values()]
        return {symbol: codeobject.KernelCode(**self.code.get(symbol, CODE)) for symbol in symbols}

    def write(self, **change: Any) -> None:
        figures = {
            name: {"archs": {"gfx950": {**FIGURES, "symbol": kernel.symbol, "text_sha256": kernel.text_sha256}}}
            for name, kernel in self.kernels.items()
        }
        manifests.write_library(self.file.parent, manifests.document(figures, **{**FACTS, **change}))

    def run(self, command: str, *options: str) -> tuple[int, str, str]:
        only = ("--only", "static", "--work", str(self.work), "--baselines", str(self.baselines))
        return self.command(command, "--arch", "gfx950", "--upstream", "aiter", *only, *options)

    @property
    def baseline(self) -> Path:
        return self.baselines / "gfx950/embedded/aiter.static.jsonl"

    @property
    def result(self) -> Path:
        return self.file.with_name("gate.json")


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> Library:
    """Built, and accepted as the baseline."""
    monkeypatch.delenv("CK_ROOT", raising=False)
    built = Library(tmp_path, monkeypatch, run)
    assert built.run("accept", "--reason", "the first")[0] == 0
    return built


def test_same_build_is_unchanged_in_every_metric(library: Library) -> None:
    assert library.run("gate")[0] == 0
    gate = Gate.read(library.result)
    assert (gate.verdict, {row.verdict for row in gate.rows}) == ("unchanged", {"unchanged"})
    assert [(row.subject, row.metric) for row in gate.rows] == [
        (k, m) for k in (MASKED, SMALL) for m in (*FIGURES, *LOOP)
    ]
    assert gate.provenance["identity"] == "embedded clang 1"
    assert gate.provenance["baselines"] == str(library.baselines)


def test_report_counts_no_gate_of_library_built_again(library: Library) -> None:
    report = ("report", "--input", library.work / "build")
    assert library.run("gate")[0] == 0
    assert library.command(*report)[0] == 0
    library.write(artifacts={"libckpm.so": hashlib.sha256(b"another").hexdigest()})
    code, _, err = library.command(*report)
    assert (code, f"failed: {library.result}: not counted: made from another build" in err) == (8, True)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"sgpr_spills": 61}, "sgpr_spills: 60 -> 61 registers (allowed: no change)"),
        ({"vgpr": 201}, "vgpr: 200 -> 201 registers (allowed: no change)"),
        ({"vgpr_spills": 1}, "vgpr_spills: 0 -> 1 registers (allowed: no change)"),
        ({"text_bytes": 10101}, "text_bytes: 10000 -> 10101 B (allowed: 1 %)"),
        ({"occupancy_waves": 1}, "occupancy_waves: 2 -> 1 waves a SIMD (allowed: no change)"),
    ],
)
def test_worse_figure_is_named(library: Library, change: dict[str, int], complaint: str) -> None:
    library.kernels[SMALL] = resources("a", **change)
    code, _, err = library.run("gate")
    assert code == CheckFailedError.exit_code
    assert f"\n  regressed: {complaint}\n" in err
    assert f"\n    {SMALL}" in err
    assert f"\nAll of them are in {library.result}.\nmore about this: docs/reference/messages.md#regressed" in err
    assert Gate.read(library.result).verdict == "regressed"


@pytest.mark.parametrize(
    ("change", "code", "complaint"),
    [
        ({"loop": {"mfma": 256, "valu": 1000, "scratch": 0}}, 8, "\n  regressed: loop_mfma: 128 -> 256 instructions"),
        ({"loop": {"mfma": 128, "valu": 500, "scratch": 2}}, 8, "\n  regressed: loop_scratch: 0 -> 2 instructions"),
        ({"hazards": ("pc 0x10: v2 ...",)}, 8, "wait_hazards: none -> 1 uses (allowed: at most 0, budget waits)"),
        (
            {"missing_states": ("pc 0x10: v_mfma ...",)},
            8,
            "missing_states: none -> 1 instructions (allowed: at most 0, budget wait-states)",
        ),
        ({"unknown": 1}, 9, "{}: 1 unknown instructions"),
    ],
)
def test_worse_loop_or_late_wait_is_named(library: Library, change: dict[str, Any], code: int, complaint: str) -> None:
    library.code["a"] = {**CODE, **change}
    exit_code, _, err = library.run("gate")
    assert exit_code == code
    assert complaint.format(SMALL) in err


def test_kernel_is_named_once_with_worst_figure_first(library: Library) -> None:
    library.kernels[SMALL] = resources("a", vgpr=201, sgpr_spills=120)
    library.kernels[MASKED] = resources("b", vgpr=220)
    _, _, err = library.run("gate")
    lines = [line.partition(" registers")[0] for line in err.splitlines()]
    assert lines[:-2] == [
        "error: regressed: 3 of 28 figures",
        "  regressed: sgpr_spills: 60 -> 120",
        "  regressed: vgpr: 200 -> 201",
        f"    {SMALL}",
        "  regressed: vgpr: 200 -> 220",
        f"    {MASKED}",
    ]


def test_kernel_compiled_to_several_has_worst_figures(library: Library) -> None:
    wide = resources("wide", vgpr=150, lds_bytes=60000, occupancy_waves=1)
    row = {**FIGURES, "vgpr": 150, "lds_bytes": 60000, "occupancy_waves": 1, "symbol": "wide", "text_sha256": "of wide"}
    first = {"archs": {"gfx950": {**FIGURES, "symbol": "a", "text_sha256": "of a"}}, "others": {"gfx950": [row]}}
    manifests.write_library(library.file.parent, manifests.document({SMALL: first}, **FACTS))
    library.code["wide"] = {**CODE, "loop": {"mfma": 128, "valu": 800, "salu": 5}}
    library.kernels = {SMALL: resources("a"), "wide": wide}
    manifest = Manifest.read(library.file)
    figures = static_gate.by_kernel(library.file.with_name("libckpm.so"), manifest, "gfx950")
    most = {"lds_bytes": 60000, "occupancy_waves": 1, "loop_valu": 800, "loop_salu": 5}
    assert figures == {SMALL: {**FIGURES, **LOOP, **most}}
    library.kernels["late"] = resources("late")
    with pytest.raises(InconclusiveError, match="1 kernels that its manifest doesn't know"):
        static_gate.by_kernel(library.file.with_name("libckpm.so"), manifest, "gfx950")


def test_better_figures_pass_and_are_reported(library: Library) -> None:
    library.kernels[SMALL] = resources("a", sgpr_spills=0, occupancy_waves=3, text_bytes=9901)
    code, out, _ = library.run("gate")
    assert (code, "improved: 2 improved, 26 unchanged" in out) == (0, True)


def test_removed_kernel_regresses_and_new_is_missing(library: Library) -> None:
    removed = library.kernels.pop(MASKED)
    library.write()
    code, _, err = library.run("gate")
    assert code == CheckFailedError.exit_code
    assert "\n  regressed: built: 1 -> 0 (allowed: no change)\n" in err
    assert f"\n    {MASKED}; in the baseline, but no longer built\n" in err
    library.kernels |= {MASKED: removed, ALIBI: resources("c")}
    library.write()
    code, out, err = library.run("gate")
    assert code == InconclusiveError.exit_code
    assert f"\n  missing: built: 0 -> 1 (allowed: no change)\n    {ALIBI}; not in the baseline\n" in err
    assert f"accepted: ckpm accept --reason TEXT --arch gfx950 --upstream aiter --work {library.work} " in out


def test_regression_beside_new_kernel_advises_no_accept(library: Library) -> None:
    library.kernels |= {SMALL: resources("a", vgpr_spills=64), ALIBI: resources("c")}
    library.write()
    code, out, err = library.run("gate")
    assert (code, "ckpm accept" in out + err) == (CheckFailedError.exit_code, False)
    regressed, missing = (err.index(f"\n  {word}: ") for word in ("regressed: vgpr_spills", "missing: built"))
    assert regressed < missing


def test_regression_before_gate_without_baseline_fails(
    library: Library, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The static gate regressed, then the suites' gate has nothing to compare with."""

    def make_judged(*options: Any) -> library_gates.JudgedLibrary:
        whole = library_gates.gated_library(*options)
        figures = {"static": whole.figures["static"], "suites": whole.figures["suites"]}
        return dataclasses.replace(whole, figures=figures, left_out={})

    monkeypatch.setattr(gate_command, "gated_library", make_judged)
    options = ("gate", "--arch", "gfx950", "--work", str(library.work), "--baselines", str(library.baselines))
    code, _, err = run(*options)
    assert (code, "there is no baseline" in err) == (InconclusiveError.exit_code, True)
    library.kernels[SMALL] = resources("a", vgpr_spills=64)
    code, _, err = run(*options)
    assert (code, "regressed: vgpr_spills: 0 -> 64" in err) == (CheckFailedError.exit_code, True)
    assert {row.gate for row in Gate.read(library.result).rows} == {"static", "suites"}


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda text: None, "there is no baseline"),
        (lambda text: "", "static.jsonl:1: can't be read as a line of a baseline: "),
        (lambda text: text[: len(text) // 2], "static.jsonl:2: can't be read as a line of a baseline: "),
        (lambda text: text[:-1], "its last line has no end: was it cut short?"),
        (lambda text: "".join(text.splitlines(keepends=True)[:2]), "subjects: is 2, but 1 follow"),
        (lambda text: text + text.splitlines(keepends=True)[1], "static.jsonl:4: subject: is the subject of a line "),
        (
            lambda text: text.replace('"vgpr": 200', '"vgpr": NaN'),
            "static.jsonl:2: can't be read as a line of a baseline: NaN",
        ),
        (lambda text: text.replace('"vgpr": 200', '"vgpr": "2"'), "static.jsonl:2: figures.vgpr: must be "),
        (lambda text: text.replace('"vgpr": 200, ', ""), "no figure in the baseline"),
        (lambda text: text.replace('"vgpr": 200', '"wgpr": 200'), "metric 'wgpr'"),
        (lambda text: text.replace("clang 1", "clang 2"), "identity: embedded clang 2 / embedded clang 1"),
        (lambda text: text.replace("gfx950", "gfx942"), "arch: gfx942 / gfx950"),
        (lambda text: text.replace("amd-aiter 1", "amd-aiter 0"), "upstream_identity: amd-aiter 0 / amd-aiter 1"),
        (lambda text: text.replace("ck-2025-11", "ck-2025-06"), "dialect: ck-2025-06 / ck-2025-11"),
        (lambda text: text.replace("tier smoke", "tier full"), "selection: tier full / tier smoke"),
    ],
)
def test_missing_damaged_or_foreign_baseline_fails(
    library: Library, damage: Callable[[str], str | None], complaint: str
) -> None:
    assert library.run("gate")[0] == 0
    text = damage(library.baseline.read_text())
    library.baseline.unlink()
    if text is not None:
        library.baseline.write_text(text)
    code, _, err = library.run("gate")
    assert code == InconclusiveError.exit_code
    assert complaint in err
    # written, for the report; not with the verdict of the run before
    assert Gate.read(library.result).verdict == "not comparable"
    assert complaint in str(Gate.read(library.result).failing[0])
    assert "not comparable" in library.result.with_suffix(".xml").read_text()


def test_manifest_of_another_build_is_not_judged(library: Library) -> None:
    library.kernels[SMALL] = resources("other")
    code, _, err = library.run("gate")
    assert code == InconclusiveError.exit_code
    assert f"{SMALL} is not in the library" in err


def test_code_that_cannot_be_read_is_not_pass(tmp_path: Path) -> None:
    file = tmp_path / "libckpm.so"
    file.write_bytes(b"no ELF")
    with pytest.raises(CodeObjectError, match="no readable ELF file"):
        static_gate.by_kernel(file, manifests.record(SMALL), "gfx950")


@pytest.mark.parametrize("command", COMMANDS)
def test_library_that_does_not_fit_manifest_is_refused(library: Library, command: tuple[str, ...]) -> None:
    before = library.baseline.read_bytes()
    library.file.with_name("libckpm.so").write_bytes(b"another library")
    code, _, err = library.run(*command)
    assert code == LibraryError.exit_code
    assert hashlib.sha256(b"another library").hexdigest() in err
    assert library.baseline.read_bytes() == before
    assert not library.result.exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_gate_without_library_names_build(library: Library, command: tuple[str, ...]) -> None:
    library.file.with_name("libckpm.so").unlink()
    code, _, err = library.run(*command)
    assert code == LibraryError.exit_code
    assert "libckpm.so: no such file. Build it again: " in err


@pytest.mark.parametrize("command", COMMANDS)
def test_gate_without_manifest_names_build_of_this_library(library: Library, command: tuple[str, ...]) -> None:
    library.file.unlink()
    code, _, err = library.run(*command)
    assert code == LibraryError.exit_code
    assert "no such manifest. Build the library first: ckpm build --arch gfx950 --upstream aiter" in err


ROCM_70 = {**FACTS, "arch": "gfx950", "toolchain": "rocm", "identity": "rocm hipcc HIP 7.0.2-9999 clang 20.0.0git"}
ROCM_71 = {**ROCM_70, "identity": "rocm hipcc HIP 7.1.0-1 clang 20.0.0git roc-7.1.0"}


def test_two_versions_of_rocm_share_no_baseline(tmp_path: Path) -> None:
    paths = [accept(facts, {"static": {SMALL: FIGURES}}, "why", tmp_path)[0] for facts in (ROCM_70, ROCM_71)]
    assert [path.parent.name for path in paths] == [
        "rocm-hipcc-HIP-7.0.2-9999-clang20.0.0git", "rocm-hipcc-HIP-7.1.0-1-clang20.0.0git-roc-7.1.0",
    ]  # fmt: skip
    assert [len(baseline.read_history(baseline.history_of(facts, tmp_path))) for facts in (ROCM_70, ROCM_71)] == [1, 1]
    assert baseline.path_of({**ROCM_70, "toolchain": "embedded"}, "static", tmp_path).parent.name == "embedded"


@pytest.mark.parametrize("command", COMMANDS)
def test_library_of_other_upstream_is_refused(library: Library, command: tuple[str, ...]) -> None:
    library.write(upstream="flash-attn")
    code, _, err = library.run(*command)
    assert code == InconclusiveError.exit_code
    assert "a library of flash-attn, not of aiter" in err


def test_accepting_leaves_line_of_history(library: Library) -> None:
    library.kernels[SMALL] = resources("a", vgpr=208)
    accept_wider = ("accept", "--reason", " wider\n loads ")
    codes = [library.run(*command)[0] for command in (("gate",), accept_wider, ("gate",))]
    assert codes == [CheckFailedError.exit_code, 0, 0]
    lines = [json.loads(line) for line in (library.baselines / "gfx950/embedded/aiter.history.jsonl").open()]
    assert [(line["reason"], line["subjects"], line["sums"]["vgpr"]) for line in lines] == [
        ("the first", 2, 400),
        ("wider loads", 2, 408),
    ]
    first, second, *changed = library.run("gate", "--history")[1].splitlines()
    assert first.endswith(" static: 2 subjects: the first")
    assert second.endswith(" static: 2 subjects: wider loads")
    assert changed == ["  vgpr: 400 -> 408"]
    with (library.baselines / "gfx950/embedded/aiter.history.jsonl").open("a") as stream:
        stream.write('{"gate": "static", "reason')
    code, _, err = library.run("gate", "--history")
    assert code == InconclusiveError.exit_code
    assert "aiter.history.jsonl:3: can't be read as a line of a baseline's history" in err


def test_gate_beside_acceptance_waits_for_its_end(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    immediate = partial(hold_lock, stopped=lambda: True)  # an error in place of the wait
    monkeypatch.setattr(baseline, "hold_lock", immediate, raising=False)

    def write(file: Path, data: bytes) -> None:
        write_atomically(file, data)
        if file.name == "aiter.accepting.json":
            with ThreadPoolExecutor(1) as gate, pytest.raises(StoppedError):
                gate.submit(baseline.complete, {"arch": "gfx950", **FACTS}, library.baselines).result()

    monkeypatch.setattr(baseline, "write_atomically", write)
    assert library.run("accept", "--reason", "the second")[0] == 0
    names = {"aiter.static.jsonl", "aiter.history.jsonl"}
    assert {file.name for file in library.baseline.parent.iterdir()} == names


def test_nothing_is_accepted_without_reason(library: Library) -> None:
    before = library.baseline.read_text()
    assert library.run("accept", "--reason", " ")[0] == UsageError.exit_code
    assert library.baseline.read_text() == before


def row(verdict: str, **change: Any) -> VerdictRow:
    fields = {"gate": "gpu", "subject": "s", "metric": "m", "unit": "us", "baseline": 1.0, "candidate": 2.0}
    return VerdictRow(**{**fields, "threshold": "", "verdict": verdict, **change})


def test_worst_row_speaks_and_has_its_exit_code(tmp_path: Path) -> None:
    for verdicts, verdict, error in (
        (("unchanged", "improved"), "improved", None),
        (("improved", "inconclusive"), "inconclusive", InconclusiveError),
        (("inconclusive", "regressed"), "regressed", CheckFailedError),
        (("missing", "regressed", "not comparable"), "regressed", CheckFailedError),
        (("missing", "unchanged"), "not comparable", InconclusiveError),
        (("not comparable", "unchanged"), "not comparable", InconclusiveError),
    ):
        assert worst(verdicts) == verdict
        gate = Gate.of([row(word) for word in verdicts], {"arch": "gfx950"})
        gate.write(tmp_path / "gate.json")
        assert Gate.read(tmp_path / "gate.json") == gate
        if error is None:
            demand(gate)
        else:
            with pytest.raises(error):
                demand(gate)
    assert [error.exit_code for error in (CheckFailedError, InconclusiveError)] == [8, 9]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"verdict": "unchanged", "provenance": {}, "rows": []}', "nan", "cut"]
)
def test_damaged_result_is_not_pass(tmp_path: Path, text: str) -> None:
    file = tmp_path / "gate.json"
    Gate.of([row("regressed")], {}).write(file)
    whole = file.read_text()
    damaged = {"cut": whole[:-20], "nan": whole.replace("2.0", "NaN")}.get(text, text)
    file.write_text(damaged)
    with pytest.raises(InconclusiveError):
        Gate.read(file)
    file.write_text(whole.replace('"verdict": "regressed",\n "prov', '"verdict": "unchanged",\n "prov'))
    with pytest.raises(InconclusiveError, match="its rows say 'regressed'"):
        Gate.read(file)


def test_nothing_compared_is_not_pass() -> None:
    with pytest.raises(InconclusiveError, match="compared nothing"):
        Gate.of([], {})


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_figure_not_number_is_never_compared(tmp_path: Path, value: float) -> None:
    thresholds = read_thresholds(STATIC)
    with pytest.raises(InconclusiveError, match="not a finite number"):
        compare("static", {"k": {"vgpr": 1}}, {"k": {"vgpr": value}}, thresholds)
    with pytest.raises(InconclusiveError, match="not a finite number"):
        accept({"arch": "gfx950", **FACTS}, {"static": {"k": {"vgpr": value}}}, "why", tmp_path)
    assert not list(tmp_path.iterdir())


def test_stored_baselines_are_whole() -> None:
    files = sorted(baseline.FOLDER.glob("*/*/*.static.jsonl"))
    assert {file.parts[-3] for file in files} >= {"gfx942", "gfx950"}
    for file in files:
        stored = baseline.read(file)
        assert file == baseline.path_of(stored.facts, "static")
        assert file.read_text() == stored.text()


def store(tmp_path: Path, **facts: str) -> tuple[baseline.Baseline, Path]:
    """Accepted figures of two kernels."""
    identity = {"arch": "gfx950", **FACTS, **facts}
    (file,) = accept(identity, {"static": {SMALL: FIGURES, MASKED: FIGURES}}, "the first", tmp_path)
    return baseline.read(file), file


OWN = "amd-aiter {} with headers sha256:{}"


@pytest.mark.parametrize(
    ("upstream", "identities", "refused", "complaint"),
    [
        ("checkout", ("checkout sha256:1", "checkout sha256:2"), {"dialect": "ck-2025-06"},
         "dialect: ck-2025-11 / ck-2025-06"),
        ("ckpm", (OWN.format(1, 1), OWN.format(1, 2)), {"upstream_identity": OWN.format(2, 2)},
         "upstream_identity: amd-aiter 1 .* / amd-aiter 2 "),
    ],
)  # fmt: skip
def test_edited_text_is_judged_and_another_upstream_is_not(
    tmp_path: Path, upstream: str, identities: tuple[str, str], refused: dict[str, str], complaint: str
) -> None:
    """A checkout and our own headers may change. A dialect and a package may not."""
    accepted, file = store(tmp_path, upstream=upstream, upstream_identity=identities[0])
    edited = {"arch": "gfx950", **FACTS, "upstream": upstream, "upstream_identity": identities[1]}
    baseline.demand_same(accepted, edited, file)
    with pytest.raises(InconclusiveError, match=complaint):
        baseline.demand_same(accepted, {**edited, **refused}, file)


SMOKE = "archs gfx950, family batch_prefill, receipt 0, masks simplified, tier smoke"
NARROW = f"{SMOKE}, --filter '*_nmask_*'"
BUILD_SMOKE = (
    "ckpm build --upstream aiter --arch gfx950 --family batch_prefill --receipt 0 --mask simplified --tier smoke"
)


@pytest.fixture
def narrower(library: Library) -> Library:
    """Accepted with two kernels, then built again with one of them, by a filter."""
    library.write(selection=SMOKE)
    assert library.run("accept", "--reason", "smoke", "--replace")[0] == 0
    library.kernels = {SMALL: resources("a", vgpr=199)}
    library.write(selection=NARROW)
    return library


def test_narrower_selection_names_build_of_baseline(narrower: Library) -> None:
    """The remedy leaves the baseline as it is: it builds what was accepted, in the folder of the call."""
    code, _, err = narrower.run("gate")
    assert code == InconclusiveError.exit_code
    assert f"selection: {SMOKE} / {NARROW}\n  built: 1 / 0: {MASKED}\n" in err
    assert f"Build the baseline's selection: {BUILD_SMOKE} --work {narrower.work}\n" in err
    assert "accept" not in err


def test_accept_of_other_selection_needs_replace(narrower: Library) -> None:
    before = narrower.baseline.read_bytes()
    code, _, err = narrower.run("accept", "--reason", "why")
    assert code == InconclusiveError.exit_code
    assert f"aiter.static.jsonl: 2 kernels -> 1: accepted for {SMOKE}; this build is {NARROW}" in err
    assert f"Build the baseline's selection: {BUILD_SMOKE}" in err
    assert narrower.baseline.read_bytes() == before
    code, out, _ = narrower.run("accept", "--reason", "why", "--replace")
    assert (code, "aiter.static.jsonl: 2 kernels -> 1" in out) == (0, True)
    assert [*baseline.read(narrower.baseline).figures] == [SMALL]


def test_partial_accept_updates_rows_of_built_kernels(narrower: Library) -> None:
    before = baseline.read(narrower.baseline)
    code, out, err = narrower.run("accept", "--reason", "one less", "--partial")
    assert (code, "1 of 2 kernels" in out) == (0, True), err
    after = baseline.read(narrower.baseline)
    assert after.facts == {**before.facts, "reason": "one less"}
    assert (after.figures[MASKED], after.figures[SMALL]["vgpr"]) == (before.figures[MASKED], 199)


def test_partial_accept_keeps_rows_of_interrupted_one(narrower: Library) -> None:
    figures = baseline.read(narrower.baseline).figures
    rows = {**figures, MASKED: {**figures[MASKED], "vgpr": 222}}
    text = dataclasses.replace(baseline.read(narrower.baseline), figures=rows).text()
    narrower.baseline.with_name("aiter.accepting.json").write_text(json.dumps({narrower.baseline.name: text}))
    assert narrower.run("accept", "--reason", "one less", "--partial")[0] == 0
    after = baseline.read(narrower.baseline).figures
    assert (after[MASKED]["vgpr"], after[SMALL]["vgpr"]) == (222, 199)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"identity": "embedded clang 2"}, "identity: embedded clang 1 / embedded clang 2"),
        ({}, f"has no row of {ALIBI}"),
    ],
)
def test_partial_accept_of_other_build_is_refused(narrower: Library, change: dict[str, str], complaint: str) -> None:
    before = narrower.baseline.read_bytes()
    narrower.kernels |= {} if change else {ALIBI: resources("c")}
    narrower.write(selection=NARROW, **change)
    code, _, err = narrower.run("accept", "--reason", "why", "--partial")
    assert (code, complaint in err) == (InconclusiveError.exit_code, True)
    assert "--replace" not in err  # it would drop the rows of the other kernels
    assert narrower.baseline.read_bytes() == before


def test_partial_accept_is_offered_for_kernels_with_rows_only(narrower: Library) -> None:
    assert "--partial" in narrower.run("accept", "--reason", "why")[2]
    narrower.kernels |= {ALIBI: resources("c")}
    narrower.write(selection=NARROW)
    err = narrower.run("accept", "--reason", "why")[2]
    assert ("--partial" in err, f"Build the baseline's selection: {BUILD_SMOKE}" in err) == (False, True)


def test_remedies_repeat_options_of_call(library: Library) -> None:
    library.write(identity="embedded clang 2")
    repeated = f"--arch gfx950 --upstream aiter --work {library.work} --only static --baselines {library.baselines}"
    assert f"ckpm accept --reason TEXT {repeated}\n" in library.run("gate")[2]
    library.baseline.write_text("{")
    assert f"accept anew: ckpm accept --reason TEXT {repeated}." in library.run("gate")[2]
    library.baseline.unlink()
    assert f"then: ckpm accept --reason TEXT {repeated}\n" in library.run("gate")[2]


def test_library_of_fwd_has_baseline_of_its_own(library: Library, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    fwd = Library(library.work / "fwd", monkeypatch, run)
    fwd.file = library.work / "fwd/build/gfx950/aiter-fwd/manifest.json"
    fwd.baselines = library.baselines
    fwd.write(selection="family fwd")
    code, _, err = fwd.run("gate", "--family", "fwd")
    assert code == InconclusiveError.exit_code
    assert "aiter-fwd.static.jsonl: there is no baseline. Look at the figures" in err
    assert "accept --reason TEXT --arch gfx950 --upstream aiter --family fwd" in err
    assert fwd.run("accept", "--family", "fwd", "--reason", "why")[0] == 0
    code, out, _ = fwd.run("gate", "--family", "fwd")
    assert code == 0
    assert "left out: the emulated gate: its problems are batch prefill's, not those of fwd" in out
    assert baseline.read(library.baselines / "gfx950/embedded/aiter-fwd.static.jsonl").facts["library"] == "fwd"
    assert baseline.read(library.baseline).facts["selection"] == "tier smoke"  # batch prefill's is as it was


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--family", "bwd_convert_dq"), "no library is made of them. Known: --family batch_prefill, --family fwd"),
        (("--family", "fwd", "--only", "emulated"), "its problems are batch prefill's, not those of fwd"),
    ],
)
def test_family_that_gate_cannot_judge_is_refused(
    library: Library, run: Run, options: tuple[str, ...], complaint: str
) -> None:
    file = library.work / "build/gfx950/aiter-fwd/manifest.json"
    file.parent.mkdir()
    file.write_bytes(library.file.read_bytes())
    file.with_name("libckpm.so").write_bytes(manifests.LIBRARY_BYTES)
    code, _, err = run("gate", "--arch", "gfx950", "--upstream", "aiter", "--work", str(library.work), *options)
    assert code == 2
    assert complaint in err


def test_gate_that_decode_kernels_lack_is_refused(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = library_gates.JudgedLibrary(
        inputs=(library.file,), identity={**FACTS, "arch": "gfx950", "upstream": "decode"},
        commands=baseline.Commands(), kernels=(), budgeted=None,
        figures={"static": lambda: library_gates.GateFigures(figures={})}, left_out={},
    )  # fmt: skip
    monkeypatch.setattr("ckpm.reports.gates.decode.built", lambda arch, work: judged)
    code, _, err = library.command("gate", "--family", "decode", "--arch", "gfx950", "--only", "suites")
    assert (code, "--only suites: these kernels have no such gate" in err) == (2, True)


def test_arch_without_model_has_no_emulated_gate() -> None:
    keys = manifests.record(SMALL).keys((SMALL,))
    assert library_gates.left_out(Path("lib.so"), "batch_prefill", "gfx90a", keys) == {
        "emulated": "the model has no numbers of gfx90a: add them to reports/gates/model.yaml",
        "suites": "suite batch-prefill was not run",
    }
    assert [*library_gates.left_out(Path("lib.so"), "batch_prefill", "gfx942", keys)] == ["suites"]


def test_kernels_without_gated_problem_have_static_gate(
    library: Library, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new page size, for which matrix/performance.yaml has no problem yet."""
    monkeypatch.setattr(library_gates, "missing_kernel", lambda keys, problem: "no kernel with page_size 4096")
    every = ("--arch", "gfx950", "--work", str(library.work), "--baselines", str(library.baselines))
    assert run("accept", *every, "--reason", "registers of the new kernels")[0] == 0
    code, out, _ = run("gate", *every)
    assert (code, "left out: the emulated gate: no kernel of this library serves a problem of matrix" in out) == (
        0,
        True,
    )

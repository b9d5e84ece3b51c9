"""The document's finding by compiling alone, and the guard where it has to act: inside the autotuner and as a gate."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ckpm.base.errors import CheckFailedError, InputError, UsageError
from ckpm.decode.attention import SOURCE
from ckpm.decode.compare import LAUNCHES, autotuner, configurations
from ckpm.decode.guard.candidates import JudgedCandidate
from ckpm.decode.guard.command import OWN
from ckpm.decode.guard.compiling import function_of, judge
from ckpm.decode.guard.figures import KernelBudget
from ckpm.decode.guard.pruning import early_config_prune
from ckpm.decode.guard.ratchet import AcceptedKernel
from ckpm.decode.guard.table import read_guard_table
from ckpm.decode.problem import BASE, RESIDENT, DecodeLaunch, attention_candidate, forced_launch
from tests.unit.shared import Run

LEAN = KernelBudget(vgpr=128, vgpr_spills=0, waves=2)


def judge_lean(form: str, launch: DecodeLaunch) -> JudgedCandidate:
    return judge(function_of(SOURCE, form), attention_candidate(form, BASE, launch, "gfx950"), LEAN)


def test_resident_fills_registers_and_streaming_does_not() -> None:
    """The document: 512 VGPRs, 56 spills and one wave a SIMD before; 108, none and two after."""
    before, after = (
        judge_lean("resident", RESIDENT).figures,
        judge_lean("streaming", forced_launch("gfx950", BASE)).figures,
    )
    assert before is not None
    assert after is not None
    assert (before.vgpr, before.waves) == (512, 1)
    assert before.vgpr_spills > 0
    assert after.vgpr <= 128
    assert after.vgpr_spills == 0
    assert after.waves >= 2


def test_forced_launch_is_documents_tuple() -> None:
    """BLOCK_M=16, BLOCK_N=64, num_stages=2, num_warps=1."""
    launch = forced_launch("gfx950", BASE)
    assert (launch.block_m, launch.block_n, launch.num_stages, launch.num_warps) == (16, 64, 2, 1)


def test_autotuner_prunes_configuration_that_spills() -> None:
    """Triton's own pruning step, with arguments of the types that a launch would have."""
    tuner = autotuner("gfx950")
    tuner.nargs = arguments()
    kept = tuner.prune_configs(constants())
    assert [config_of(configuration) for configuration in kept] == [(64, 32, 1, 4), (64, 16, 1, 4)]


def test_autotuner_has_budget_of_gpu_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    target = SimpleNamespace(arch="gfx942:sramecc+:xnack-")
    active = SimpleNamespace(get_current_target=lambda: target)
    monkeypatch.setattr("triton.runtime.driver", SimpleNamespace(active=active))
    assert autotuner().configs
    target.arch = "gfx90a"
    with pytest.raises(UsageError, match="no decode kernels of gfx90a, only of gfx942, gfx950"):
        autotuner()


def test_pruned_are_reported_with_reason_and_one_has_to_stay(caplog: pytest.LogCaptureFixture) -> None:
    from ckpm.decode.splitk import streaming

    prune = early_config_prune(streaming, LEAN, "gfx950")
    lean, spills = (
        configuration
        for configuration in configurations()
        if config_of(configuration) in ((64, 32, 1, 4), (64, 64, 1, 4))
    )
    assert prune([lean, spills], arguments(), **constants()) == [lean]
    (line,) = caplog.messages
    assert "STEP=64" in line
    assert "spilled VGPRs, of which the budget allows 0" in line
    with pytest.raises(CheckFailedError, match="no configuration fits the budget"):
        prune([spills], arguments(), **constants())


def config_of(config: Any) -> tuple[int, ...]:
    return (config.kwargs["BLOCK_N"], config.kwargs["STEP"], config.num_warps, config.kwargs["waves_per_eu"])


def test_without_gpu_modelled_cycles_choose_among_what_fits(run: Run) -> None:
    """The launches stand in the order of their cycles; each that is left out has its reason."""
    code, output, _ = run("decode", "compare", "--tune", "streaming-fp8")
    assert code == 0
    rows = [line.split("│") for line in output.splitlines() if "BLOCK_N=64 STEP=" in line and "│" in line]
    cycles = [float(row[4]) for row in rows]
    assert cycles == sorted(cycles)
    assert all(int(row[2]) <= LEAN.vgpr for row in rows)
    assert sum("(forced)" in row[1] for row in rows) == 1
    assert output.count("pruned: ") + len(rows) == len(LAUNCHES)
    assert run("decode", "compare", "--tune", "streeming")[0] == 2


def arguments() -> dict[str, Any]:
    """Arguments of a launch: arrays with an address and a type, and numbers."""
    kinds = {"q": "bf16", "k": "fp8e4nv", "v": "fp8e4nv", "lengths": "i32", "pages": "i32"}
    names = ("q", "k", "v", "k_scale", "k_shift", "v_scale", "v_shift", "partial", "logsum", "lengths", "pages")
    arrays = {name: SimpleNamespace(dtype=kinds.get(name, "fp32"), data_ptr=lambda: 1 << 20) for name in names}
    return {**arrays, "capacity": 4097, "scale": 0.1}


def constants() -> dict[str, Any]:
    return {"HEADS_KV": 1, "HEADS_Q": 8, "HEAD_DIM": 128, "GROUPS": 4, "SPLITS": 8, "PAGE_SIZE": 0}


def test_gate_passes_and_moved_figure_asks_for_acceptance(tmp_path: Path, run: Run) -> None:
    """Run on a copy of our table: as accepted, then with a changed accepted figure."""
    accepted = read_guard_table(OWN).accepted
    copy = tmp_path / "guard.yaml"
    copy.write_text(OWN.read_text().replace("baselines/triton/decode.json", "decode.json"))
    (tmp_path / "decode.json").write_bytes(accepted.read_bytes())
    assert run("guard", copy)[0] == 0
    document = json.loads(accepted.read_text())
    document["candidates"][0]["figures"]["vgpr"] += 1
    (tmp_path / "decode.json").write_text(json.dumps(document))
    code, _, err = run("guard", copy)
    assert (code, "better: " in err) == (CheckFailedError.exit_code, True)
    assert run("guard", copy, "--accept", "a test")[0] == 0
    assert AcceptedKernel.read(tmp_path / "decode.json").entries == AcceptedKernel.read(accepted).entries


def test_any_kernel_can_be_guarded_and_what_is_none_is_refused(tmp_path: Path, run: Run) -> None:
    (tmp_path / "copying.py").write_text(
        "import triton\nimport triton.language as tl\n"
        "@triton.autotune([triton.Config({'BLOCK': 256}, num_warps=1)], key=[])\n"
        "@triton.jit\ndef copy(x, y, BLOCK: tl.constexpr):\n"
        "    at = tl.arange(0, BLOCK)\n    tl.store(y + at, tl.load(x + at))\n"
    )
    table = (
        "accepted: accepted.json\nkernels:\n  copy:\n    file: copying.py\n    function: copy\n    archs: [gfx942]\n"
        "    signature: {x: '*fp32:16', y: '*fp32:16'}\n    budget: {vgpr: 64}\n"
    )
    file = tmp_path / "guard.yaml"
    file.write_text(table)
    accepting = [run("guard", file, *options)[0] for options in ((), ("--accept", "new here"), ())]
    assert accepting == [CheckFailedError.exit_code, 0, 0]
    file.write_text(table.replace("vgpr: 64", "vgpr: 1"))
    assert run("guard", file)[0] == CheckFailedError.exit_code
    file.write_text(table.replace("function: copy", "function: tl"))
    assert run("guard", file)[0] == InputError.exit_code

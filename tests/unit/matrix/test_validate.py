"""`ckpm validate`: reading a configuration, the report, exit codes, and one message for each mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ckpm.commands import main
from tests.unit.shared import Run

YAML = """\
arch: gfx950
signature:
  family: batch_prefill
  data_type: bf16
  mode: group
  hdim_q: 128
  hdim_v: 128
  vlayout: row
  mask: causal
  bias: no
  lse: true
  paged_kv: true
  page_size: 16
  kv_memory_layout: vectorized
  kv_lookup_table: sglang
algorithm:
  pipeline: qr_async
  tile: [64, 128, 64, 128, 64, 128]
  wave: [4, 1, 1, 4, 1, 1, 1, 1, 1]
  warp: [16, 16, 16, 16, 16, 16, 16, 16, 16]
  block_per_cu: -1
  num_wave_groups: 1
"""
TILE = "b64x128x64x128x64x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16"
REST = "qr_async_vr_psskddv_nlogits_nbias_mask_lse_ndropout_nqscale_nsink_vectorized_sglang"
NAMES = [f"fmha_batch_prefill_d128_bf16_group_ps16_{load}_{TILE}_{REST}" for load in ("bload", "gload")]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    def call(text: str | bytes, *options: str, name: str = "c.yaml") -> tuple[int, str, str]:
        file = tmp_path / name
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        code = main(["validate", str(file), *options])
        captured = capsys.readouterr()
        return code, captured.out.replace(f"{tmp_path}/", ""), captured.err.replace(f"{tmp_path}/", "")

    return call


def test_configuration_equal_to_kernels_is_valid(run: Run) -> None:
    code, out, err = run(YAML, "--dialect", "rocm-libraries-2026")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "c.yaml: valid"
    assert lines[1] == "c.yaml:18: contradicted: algorithm.tile[0]: bm0 64; 128 is needed"
    assert lines[4].startswith("  contradicted: CK's codegen lists tiles of 64 queries")
    assert {f"equals {name} of rocm-libraries-2026" for name in NAMES} <= set(lines[5:])


def test_without_dialect_every_age_is_searched(run: Run) -> None:
    _, out, _ = run(YAML)
    assert {line.rpartition(" of ")[2] for line in out.splitlines() if line.startswith("equals ")} == {
        "rocm-libraries-2026",
        "rocm-libraries-2026-04",
        "rocm-libraries-2026-09",
        "prefill-v3",
        "ckpm-extended",  # the kernel for any multiple of 16
    }


@pytest.mark.parametrize("text", ['{"variant": "fwd", "trait_config": {}}', '{"families": ["fwd"]}'])
def test_file_of_a_sweep_is_refused_with_its_command(run: Run, text: str) -> None:
    code, out, err = run(text, name="c.json")
    assert (code, out) == (3, "")
    assert "c.json:1: a sweep's kernels, not the configuration of one: run `ckpm sweep run c.json`." in err


def test_report_has_every_mistake_with_line_and_path(run: Run) -> None:
    text = (
        YAML.replace("data_type: bf16", "data_type: bf61")
        .replace("mask: causal", "mask: casual")
        .replace("lse: true", "lsee: true")
        .replace("hdim_q: 128", "hdim_q: 128.5")
        .replace("paged_kv: true", "paged_kv: yes")
        .replace("page_size: 16", "page_size: 24")
        .replace("kv_memory_layout: vectorized", "kv_memory_layout: [vectorized]")
        .replace("[64, 128, 64, 128, 64, 128]", "[64, 128, 64, true, -1, 128]")
        .replace("  num_wave_groups: 1\n", "  padding: [true, false, maybe, 8, 1]\n")
    )
    code, out, err = run(text)
    assert code == 8
    assert err == "error: c.yaml: 13 errors; the report lists what to fix.\n"
    complaints = [line.partition(" Known")[0] for line in out.splitlines() if line.startswith("c.yaml:")]
    assert sorted(complaints) == sorted(
        [
            "c.yaml: 13 errors",
            "c.yaml:4: error: signature.data_type: unknown dtype 'bf61'; did you mean 'bf16'?",
            "c.yaml:6: error: signature.hdim_q: must be a whole number, not 128.5",
            "c.yaml:9: error: signature.mask: unknown mask 'casual'; did you mean 'causal'?",
            "c.yaml:11: error: signature.lsee: unknown field 'lsee'; did you mean 'lse'?",
            "c.yaml:12: error: signature.paged_kv: must be true or false, not 'yes'",
            "c.yaml:13: error: signature.page_size: page_size 24",
            "c.yaml:14: error: signature.kv_memory_layout: must be a word, not a list",
            "c.yaml:16: error: algorithm.num_wave_groups: is missing",
            "c.yaml:18: error: algorithm.tile[3]: must be a whole number from 0 on, not True",
            "c.yaml:18: error: algorithm.tile[4]: must be a whole number from 0 on, not -1",
            "c.yaml:22: error: algorithm.padding: must hold 4 paddings, not 5",
            "c.yaml:22: error: algorithm.padding[2]: must be true, false or 8, not 'maybe'",
            "c.yaml:22: error: algorithm.padding[4]: must be true, false or 8, not 1",
        ]
    )


def test_json_reads_as_yaml_does_and_report_comes_as_json(run: Run) -> None:
    values = {
        "arch": "gfx942",
        "signature": {"family": "fwd", "data_type": "fp16", "hdim_q": 128, "hdim_v": 128, "mask": "no", "bias": "no"},
        "algorithm": {
            "pipeline": "qr",
            "tile": [128, 64, 32, 128, 32],
            "wave": [4, 1, 1, 4, 1, 1, 1, 1, 1],
            "warp": [32, 32, 16, 32, 32, 16, 16, 16, 16],
            "block_per_cu": -1,
            "num_wave_groups": 1,
        },
    }
    code, out, _ = run(json.dumps(values, indent="\t"), "--format", "json", name="c.json")
    report = json.loads(out)
    assert code == 8
    assert (report["valid"], report["errors"], report["warnings"], report["kernels"]) == (False, 2, 0, [])
    assert [(finding["rule"], finding["severity"], finding["paths"]) for finding in report["findings"]] == [
        ("tile_has_its_length", "error", ["algorithm.tile"]),
        ("d128_takes_tiles_of_128_keys", "error", ["algorithm.tile[1]"]),
    ]
    assert [finding["line"] for finding in report["findings"]] == [13, 15]
    assert all(finding["reason"] and finding["source"] for finding in report["findings"])


def test_warning_alone_is_valid(run: Run) -> None:
    text = YAML.replace("batch_prefill", "fwd").replace("row", "col").replace("gfx950", "gfx942")
    code, out, _ = run(text.replace("[64,", "[128,"), "--dialect", "ck-2025-11")
    assert code == 0
    assert out.startswith("c.yaml: 1 warning\nc.yaml:8: warning: signature.vlayout, signature.family: fwd with column")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("arch: gfx951\nsignature: {}\nalgorithm: {}\n", "c.yaml:1: error: arch: unknown arch 'gfx951'; did you mean"),
        ("arch: gfx950\nalgorithm: {}\n", "c.yaml:1: error: signature: is missing, with all its fields"),
        ("arch: gfx950\nsignature: 3\n", "c.yaml:2: error: signature: must be a mapping of its fields, not 3"),
        (
            "arch: gfx950\nsignature: {familiy: fwd}\n",
            "c.yaml:2: error: signature.familiy: unknown field 'familiy'; did",
        ),
    ],
)
def test_mistake_of_form_names_its_path_and_nearest_word(run: Run, text: str, expected: str) -> None:
    code, out, _ = run(text)
    assert code == 8
    assert expected in out


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("c.yaml", "a: [1\nb: 2\n", "c.yaml:2: not valid YAML"),
        ("c.json", '{"arch": "gfx950",\n "signature": {},}\n', "c.json:2: not valid JSON"),
        ("c.json", "arch: gfx950\n", "c.json:1: not valid JSON"),
        ("c.json", "[" * 100_000, "c.json:1: not"),
    ],
)
def test_file_that_is_not_configuration_ends_at_once(run: Run, name: str, text: str, expected: str) -> None:
    code, out, err = run(text, name=name)
    assert (code, out) == (3, "")
    assert err.startswith(f"error: {expected}")


def test_missing_file_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["validate", str(tmp_path / "no.yaml")]) == 3
    assert "no.yaml:1: the configuration can't be read: [Errno 2]" in capsys.readouterr().err


def test_kernel_of_matrix_is_always_valid(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--dialect", "rocm-libraries-2026", "--kernel", NAMES[0]]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{NAMES[0]}: valid\ncontradicted: algorithm.tile[0]: bm0 64; 128 is needed\n")


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        (NAMES[0].replace("bf16", "fp8bf16"), (), "error: key.dtype, key.qscale: fp8 kernels"),
        (NAMES[0].replace("ps16", "ps1"), (), "error: key.page_size, key.kv_layout: the vectorized KV layout"),
        (NAMES[0].replace("b64x128x64", "b32x128x64"), (), "error: key.tile: tile b32x128x64"),
        (NAMES[0], ("--arch", "gfx1100"), "error: key.arch_trait: for gfx90a, gfx942, gfx950, not for gfx1100"),
    ],
)
def test_kernel_outside_matrix_is_refused_by_its_tables(
    capsys: pytest.CaptureFixture[str], name: str, options: tuple[str, ...], expected: str
) -> None:
    assert main(["validate", "--dialect", "rocm-libraries-2026", *options, "--kernel", name]) == 8
    assert expected in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        ((), 2, "give either a FILE or --kernel NAME"),
        (("c.yaml", "--kernel", NAMES[0]), 2, "give either a FILE or --kernel NAME"),
        (("c.yaml", "--arch", "gfx942"), 2, "--arch belongs to --kernel"),
        (("--kernel", NAMES[0], "--arch", "gfx9", "--dialect", "rocm-libraries-2026"), 2, "unknown arch 'gfx9'"),
        (("--kernel", "fmha_x", "--dialect", "rocm-libraries-2026"), 3, "is no"),
        (("c.yaml", "--dialect", "ck"), 2, "unknown dialect 'ck'"),
    ],
)
def test_validate_with_wrong_options_is_refused(
    capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], code: int, message: str
) -> None:
    assert main(["validate", *argv]) == code
    assert message in capsys.readouterr().err

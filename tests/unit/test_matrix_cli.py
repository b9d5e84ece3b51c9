"""`python -m matrix`: what each command prints, and one clear message with its own exit code for each bad input."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from matrix import dialects
from matrix.cli import main
from matrix.dialects import TABLES, dialect
from matrix.export import key_from_row
from matrix.options import Parser, add_selection_options, selection_from
from matrix.selection import Selection, select

ROOT = Path(__file__).parents[2]
TILE = "b64x128x64x128x64x128_r4x1x1_r4x1x1_w16x16x16_w16x16x16"
GROUP = f"fmha_batch_prefill_d128_bf16_group_{TILE}_qr_async_vr_psskddv_nlogits_nbias_mask_lse_ndropout_nsquant"
NEWEST = (
    f"fmha_batch_prefill_d128_bf16_group_ps16_bload_{TILE}_qr_async_vr_psskddv_nlogits_nbias_mask_lse_ndropout_nqscale"
    "_nsink_vectorized_sglang"
)
ABSENT = (
    "ck-2025-11 has no batch_prefill kernel for gfx1100: batch prefill gathers pages through gfx9 buffer instructions; "
    "wave32 archs have no such pipeline\n"
)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]):
    def call(*argv: str) -> tuple[int, str, str]:
        code = main(argv)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_list_names_the_default_upstream_arch_and_family(run) -> None:
    code, out, err = run("list")
    assert (code, err) == (0, "")
    expected = select(dialect("ck-2025-11"), Selection(archs=("gfx950",)))
    assert out.splitlines() == [key.name for key in expected]
    assert len(expected) == 384


def test_list_as_json_and_csv_holds_all_fields(run) -> None:
    options = ("--where", "key.lse", "--receipt", "200", "--tier", "smoke")
    expected = select(
        dialect("ck-2025-11"), Selection(archs=("gfx950",), where=("key.lse",), receipt=200, tier="smoke")
    )
    for command in ("list", "export"):
        code, out, _ = run(command, *options, "--format", "json")
        assert (code, [key_from_row(row) for row in json.loads(out)]) == (0, expected)
        code, out, _ = run(command, *options, "--format", "csv")
        assert (code, [key_from_row(row) for row in csv.DictReader(io.StringIO(out))]) == (0, expected)


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (("--upstream", "flash-attn"), 768),
        (("--upstream", "aiter", "--dialect", "rocm-libraries-2026"), 4848),
        (("--upstream", "checkout", "--dialect", "ck-2025-06"), 768),
        (("--dialect", "rocm-libraries-2026", "--mask", "generic"), 8080),
        (("--arch", "gfx90a,gfx942", "--arch", "gfx950"), 384),
        (("--family", "all"), 13009),  # as many as upstream lists
        (("--family", "batch_prefill, batch_prefill,"), 384),
        (("--filter", "*_fp16_*", "--filter", "*_group_*"), 64),
        (("--where", "key.lse", "--where", "key.dropout"), 96),
        (("--shard", "2/5"), 77),
        (("--profile", "pytorch", "--receipt", "100"), 128),
    ],
)
def test_options_select(run, options: tuple[str, ...], count: int) -> None:
    code, out, err = run("list", *options)
    assert (code, len(out.splitlines()), err) == (0, count, "")


def test_the_default_tier_is_the_entry_points_choice() -> None:
    parser = Parser()
    add_selection_options(parser, tier="smoke")
    assert selection_from(parser.parse_args([]))[1] == Selection(archs=("gfx950",), tier="smoke")
    assert selection_from(parser.parse_args(["--tier", "full"]))[1].tier == "full"


def test_count_is_a_table_with_the_reason_for_nothing(run) -> None:
    code, out, err = run("count", "--arch", "gfx90a,gfx950,gfx1100", "--receipt", "200")
    assert (code, err) == (0, "")
    assert out == (
        "family         gfx90a  gfx950  gfx1100  distinct\n"
        "batch_prefill     128     128        0       128\n"
        "total             128     128        0       128\n" + ABSENT
    )


def test_count_as_data(run) -> None:
    code, out, _ = run("count", "--arch", "gfx950,gfx1100", "--format", "json")
    assert code == 0
    assert json.loads(out) == [
        {"family": "batch_prefill", "arch": "gfx950", "count": 384, "reason": ""},
        {"family": "batch_prefill", "arch": "gfx1100", "count": 0, "reason": ABSENT.rstrip()},
    ]
    assert run("count", "--format", "csv")[1] == "family,arch,count,reason\nbatch_prefill,gfx950,384,\n"


def test_count_of_an_empty_receipt_is_zero(run) -> None:
    # upstream's receipt 100 asks for batch mode, which batch prefill no longer has
    code, out, _ = run("count", "--dialect", "rocm-libraries-2026", "--receipt", "100")
    assert (code, out.splitlines()[1].split()) == (0, ["batch_prefill", "0", "0"])


@pytest.mark.parametrize(
    ("command", "output"),
    [(("list",), ""), (("list", "--format", "json"), "[]\n"), (("export",), "[]\n")],
)
def test_archs_without_kernels_are_no_error(run, command: tuple[str, ...], output: str) -> None:
    assert run(*command, "--arch", "gfx1100") == (0, output, ABSENT)


def test_a_mixed_list_says_which_arch_adds_nothing(run) -> None:
    code, out, err = run("list", "--arch", "gfx1100,gfx950")
    assert (code, len(out.splitlines()), err) == (0, 384, ABSENT)


def test_show(run) -> None:
    code, out, err = run("show", GROUP)
    assert (code, err) == (0, "")
    fields = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert fields["name"] == GROUP
    assert (fields["hdim_v"], fields["tile.bm0"], fields["tile.when"]) == ("128", "64", "few_blocks")
    assert (fields["logits"], fields["lse"], fields["sink"]) == ("false", "true", "-")
    assert fields["archs"] == "gfx90a, gfx942, gfx950"
    assert fields["receipts"] == "0, 1, 2, 3, 4, 200, 300, 400, 600, 700, 888"
    assert fields["profiles"] == "ck_default, ck_extended, flash_fwd, pytorch, aiter_group, aiter_cpp, all"
    assert fields["tiers"] == "full, nightly"


def test_show_as_data_agrees_with_what_the_receipts_list(run) -> None:
    row = json.loads(run("show", NEWEST, "--dialect", "rocm-libraries-2026", "--format", "json")[1])
    assert key_from_row(row).name == NEWEST
    for receipt in (0, 2, 4, 100, 200, 600, 700, 800, 888):
        selection = Selection(archs=("gfx950",), receipt=receipt, filters=(NEWEST,))
        assert (receipt in row["receipts"]) == bool(select(dialect("rocm-libraries-2026"), selection))
    assert run("show", GROUP, "--format", "csv")[1].startswith(f"field,value\nname,{GROUP}\nfamily,batch_prefill\n")


def test_why_a_kernel_is_in_names_axes_and_their_lines(run) -> None:
    code, out, err = run("why", GROUP)
    assert (code, err) == (0, "")
    lines = [line.split("  ") for line in out.splitlines()]
    assert out.startswith(
        f"{GROUP}\nis in ck-2025-11 (archs gfx950, family batch_prefill, receipt 0, masks simplified, "
    )
    assert out.endswith("receipts that hold it: 0, 1, 2, 3, 4, 200, 300, 400, 600, 700, 888\n")
    axes = {line[0]: [cell.strip() for cell in line if cell.strip()][1:] for line in lines[2:-1]}
    assert axes["bias"][:2] == ["no", "bias, alibi"]
    assert axes["hdim_q"][:2] == ["128", "-"]
    for axis, (_, _, place) in ((name, cells) for name, cells in axes.items() if name != "axis"):
        file, line = place.split(":")
        written = (ROOT / file).read_text().splitlines()[int(line) - 1].strip(" -")
        assert written.startswith({"mask": "simplified:", "tile": "dtype:"}.get(axis, f"{axis}:"))
    assert axes["vlayout"][2].startswith("matrix/tables/dialects/ck-2025-11.yaml:")


N = ("--dialect", "rocm-libraries-2026")


@pytest.mark.parametrize(
    ("name", "options", "reasons"),
    [
        (
            NEWEST.replace("nsink", "sink").replace("_mask_", "_nmask_"),
            N,
            ["rule sink_needs_mask: a sink without a mask can't be dispatched"],
        ),
        (
            NEWEST.replace("ps16_bload", "ps1024_gload").replace("nlogits_nbias", "logits_alibi"),
            N,
            [
                "rule logits_soft_cap_without_bias: a logits soft cap is only built without bias",
                "rule gload_only_for_small_pages: 64-bit loads are not needed when page_size >= kN0: the SRD is "
                "rebased for every page",
            ],
        ),
        (GROUP.replace("d128", "d64"), (), ["axis: hdim_q '64' is not in the table, which has 128", "tile: "]),
        (GROUP.replace("_vr_", "_vc_"), (), ["axis: vlayout 'col' is not in the table, which has row"]),
        (
            GROUP.replace("b64x", "b96x"),
            (),
            [f"tile: tile {TILE.replace('b64x', 'b96x')} is not in the table for bf16 d128, which has {TILE}, b128x"],
        ),
        (GROUP.replace("_mask_", "_mc_"), (), ["masks: mask 'causal' is of the generic masks: use --mask generic"]),
        (GROUP, ("--mask", "generic"), ["masks: mask 'mask' is of the simplified masks: use --mask simplified"]),
        (GROUP, ("--receipt", "100"), ["receipt: receipt 100 (aiter mha_fwd (batch mode)) only has mode batch"]),
        (GROUP, ("--receipt", "800"), ["receipt: receipt 800 (fp32, all kernels) has no batch_prefill kernel"]),
        (GROUP, ("--profile", "fp32_all"), ["condition: Profile fp32_all doesn't keep it"]),
        (GROUP, ("--tier", "smoke"), ["condition: Tier smoke doesn't keep it"]),
        (GROUP, ("--filter", "*_fp16_*"), ["condition: --filter '*_fp16_*' doesn't keep it"]),
        (GROUP, ("--where", "not key.lse"), ["condition: --where 'not key.lse' doesn't keep it"]),
        (GROUP, ("--arch", "gfx1100"), [f"arch: {ABSENT.rstrip()}"]),
        (GROUP, ("--arch", "gfx1100,gfx950", "--tier", "smoke"), ["condition: Tier smoke doesn't keep it"]),
    ],
)
def test_why_a_kernel_is_out(run, name: str, options: tuple[str, ...], reasons: list[str]) -> None:
    code, out, err = run("why", name, *options)
    assert (code, err) == (0, "")
    head, second, *lines = out.splitlines()
    assert head == name
    assert second.startswith("is not in ")
    found = [line.strip() for line in lines if not line.startswith("    source: ")]
    assert len(found) == len(reasons)
    assert all(line.startswith(reason) for line, reason in zip(found, reasons, strict=True))
    if reasons[0].startswith("rule"):
        assert "    source: codegen/ops/fmha_batch_prefill.py" in out


def test_why_names_the_shard(run) -> None:
    outs = [run("why", GROUP, "--shard", f"{index}/3")[1] for index in (1, 2, 3)]
    inside = [index for index, out in enumerate(outs, 1) if "\nis in ck-2025-11 " in out]
    assert len(inside) == 1
    others = [out for index, out in enumerate(outs, 1) if index not in inside]
    assert all(f"  shard: it is in shard {inside[0]}/3, not " in out for out in others)


def test_why_as_data(run) -> None:
    found = json.loads(run("why", GROUP, "--format", "json")[1])
    assert (found["selected"], found["reasons"], found["axes"][0]["value"]) == (True, [], "bf16")
    found = json.loads(run("why", GROUP, "--tier", "smoke", "--format", "json")[1])
    assert (found["selected"], found["reasons"][0]["kind"]) == (False, "condition")
    assert run("why", GROUP, "--format", "csv")[1].startswith("name,value,alternatives,place\ndtype,bf16,fp16,matrix/")
    assert run("why", GROUP, "--tier", "smoke", "--format", "csv")[1].startswith("kind,name,text,source\ncondition,")


def test_why_and_list_agree_on_every_kernel_of_the_smoke_tier(run) -> None:
    listed = set(run("list", "--tier", "smoke")[1].splitlines())
    everything = run("list", "--where", "key.hdim_q == 128 and key.bias == 'no' and key.tile.bm0 == 64")[1].splitlines()
    for name in everything[::4]:
        assert ("\nis in " in run("why", name, "--tier", "smoke")[1]) == (name in listed)


def test_export_to_a_file(run, tmp_path: Path) -> None:
    file = tmp_path / "keys.csv"
    assert run("export", "--tier", "smoke", "--format", "csv", "--output", str(file)) == (0, "", "")
    assert len(file.read_text().splitlines()) == 1 + len(run("list", "--tier", "smoke")[1].splitlines())
    assert list(tmp_path.iterdir()) == [file]


ARCHS = "Known: gfx90a, gfx942, gfx950, gfx1100, gfx1201."


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        ((), 2, "the following arguments are required: COMMAND. See python -m matrix --help."),
        (("lst",), 2, "argument COMMAND: invalid choice: 'lst'"),
        (("list", "--archs", "gfx950"), 2, "unrecognized arguments: --archs gfx950. See python -m matrix --help."),
        (("list", "--arc", "gfx950"), 2, "unrecognized arguments: --arc gfx950"),
        (("list", "--arch", ","), 2, "--arch is empty; leave it out for gfx950"),
        (("list", "--mask", "x"), 2, "argument --mask: invalid choice: 'x'"),
        (("export", "--format", "text"), 2, "argument --format: invalid choice: 'text'"),
        (("show",), 2, "the following arguments are required: NAME. See python -m matrix show --help."),
        (("show", GROUP, "--filter", "x"), 2, "unrecognized arguments: --filter x"),
        (("list", "--shard", "17/16"), 2, "--shard '17/16': write I/N with 1 <= I <= N, e.g. 3/16"),
        (
            ("list", "--upstream", "checkout"),
            2,
            "--upstream checkout: the matrix doesn't look at source trees. Name the tree's dialect with --dialect "
            "(ck-2025-06, ck-2025-11, rocm-libraries-2026, rocm-libraries-2026-04).",
        ),
        (("list", "--arch", "gfx951"), 3, f"unknown arch 'gfx951'; did you mean 'gfx950'? {ARCHS}"),
        (("count", "--arch", "gfx950,cuda"), 3, f"unknown arch 'cuda'. {ARCHS}"),
        (
            ("list", "--receipt", "5"),
            4,
            "unknown receipt '5'. Known: 0, 1, 2, 3, 4, 100, 200, 300, 400, 600, 700, 800, ",
        ),
        (("list", "--receipt", "two"), 4, "unknown receipt 'two'. Known: 0, 1, 2, "),
        (("list", "--profile", "aiter"), 5, "unknown profile 'aiter'; did you mean 'aiter_cpp'? Known: ck_default, "),
        (("list", "--tier", "fast"), 6, "unknown tier 'fast'. Known: full, nightly, smoke."),
        (("list", "--dialect", "ck"), 7, "unknown dialect 'ck'. Known: ck-2025-06, ck-2025-11, rocm-libraries-2026, "),
        (
            ("list", "--upstream", "iter"),
            8,
            "unknown upstream 'iter'; did you mean 'aiter'? Known: aiter, flash-attn, ",
        ),
        (("list", "--family", "bwd"), 9, "unknown family 'bwd'; did you mean 'fwd'? Known: fwd, fwd_splitkv_combine, "),
        (("list", "--arch", "gfx1100,gfx950", "--filter", "x"), 11, "no kernel is selected (archs gfx1100,gfx950, "),
        (("list", "--filter", "x"), 11, "no kernel is selected (archs gfx950, family batch_prefill, receipt 0, masks "),
        (
            ("count", "--filter", "x"),
            11,
            "no kernel is selected (archs gfx950, family batch_prefill, receipt 0, masks ",
        ),
        (
            ("export", "--receipt", "800"),
            11,
            "no kernel is selected (archs gfx950, family batch_prefill, receipt 800, ",
        ),
        (("list", "--where", "key.bn0 == 1"), 12, "--where 'key.bn0 == 1': unknown field 'key.bn0'; did you mean "),
        (("list", "--where", "open('x')"), 12, "--where \"open('x')\": 'open('x')' is not allowed; use key.FIELD, "),
        (
            ("list", "--filter-file", "/no/f.py"),
            13,
            "--filter-file /no/f.py: no such file. It must be Python and define ",
        ),
        (
            ("show", "fmha_fwd_d128"),
            14,
            "'fmha_fwd_d128' is no fwd name of this dialect: after 'fmha_fwd_d128', expected '_', found 'the end'. ",
        ),
        (
            ("why", "x"),
            14,
            "'x' is no fwd name of this dialect: at its start, expected 'fmha_fwd_d', ",
        ),
        (
            ("why", NEWEST),
            14,
            f"'{NEWEST}' is a name of dialect rocm-libraries-2026, not of ck-2025-11. Use --dialect ",
        ),
        (
            ("show", GROUP.replace("_psskddv_", "_psddv_")),
            14,
            f"'{GROUP.replace('_psskddv_', '_psddv_')}' is no kernel of ck-2025-11: group mode needs seqlen_q and "
            "seqlen_k padding: the length of the next sequence is unknown. `python -m matrix why NAME` tells more.",
        ),
        (
            ("export", "--output", "/no/such/folder/x"),
            16,
            "/no/such/folder/x: can't be written: No such file or directory.",
        ),
    ],
)
def test_bad_input_is_one_message_and_an_exit_code(run, argv: tuple[str, ...], code: int, message: str) -> None:
    found, out, err = run(*argv)
    assert (found, out) == (code, "")
    assert err.startswith(f"error: {message}")
    assert err.count("\n") == 1


def test_a_filter_that_empties_the_selection_is_named(run) -> None:
    code, _, err = run("list", "--filter", "*_bf16_*", "--where", "key.dtype == 'fp16'", "--filter", "*_group_*")
    assert code == 11
    assert "tier full, --filter '*_bf16_*', --filter '*_group_*', --where \"key.dtype == 'fp16'\"). " in err
    assert "--where \"key.dtype == 'fp16'\" removes the last 64, e.g. fmha_batch_prefill_d128_bf16_group_" in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def keep(key):\n    raise KeyError('x')\n", "line 2: KeyError: 'x'. Mend the file."),
        ("def wanted(key):\n    return True\n", "it defines no function keep(key) -> bool."),
        ("def keep(key):\n    return 'yes'\n", "returned 'yes'; return True or False."),
        ("def keep(key:\n", "line 1: SyntaxError: '(' was never closed. Mend the file."),
    ],
)
def test_bad_filter_files(run, tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "f.py"
    file.write_text(text)
    code, out, err = run("list", "--filter-file", str(file))
    assert (code, out, err.count("\n")) == (13, "", 1)
    assert err.startswith(f"error: --filter-file {file}: ")
    assert err.endswith(f"{message}\n")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("dtype: [fp16, bf16]", "dtype: [fp16, bf16", ":19: not valid YAML: expected ',' or ']', but got ':'"),
        ("hdim_q: [128]", "hdim_q: [x]", ":19: families.batch_prefill.axes.hdim_q[0]: must be a whole number, not 'x'"),
    ],
)
def test_a_malformed_table(run, tmp_path: Path, monkeypatch, old: str, new: str, message: str) -> None:
    shutil.copytree(TABLES, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "dialects" / "ck-2025-06.yaml"
    file.write_text(file.read_text().replace(old, new, 1))
    monkeypatch.setattr(dialects, "TABLES", tmp_path)
    dialect.cache_clear()
    try:
        code, out, err = run("list")
    finally:
        dialect.cache_clear()
    assert (code, out) == (10, "")
    assert err.startswith(f"error: {file}{message}")


def module(*argv: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "matrix", *argv], cwd=ROOT, check=False, **options)


def test_the_module_runs_and_imports_no_other_package_or_room() -> None:
    code = (
        "import sys, runpy; sys.argv[1:] = ['count']\n"
        "try: runpy.run_module('matrix', run_name='__main__')\n"
        "except SystemExit as end: assert end.code == 0\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    rooms_and_packages = {"kernels", "reports", "emulator", "tests", "rich", "jinja2", "pytest", "elftools", "msgpack"}
    imported = {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert {"matrix", "yaml"} <= imported
    assert not imported & rooms_and_packages


def test_a_closed_pipe_is_no_traceback() -> None:
    command = [sys.executable, "-m", "matrix", "list"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as lister:
        assert lister.stdout is not None
        lister.stdout.close()
        assert lister.stderr is not None
        assert lister.stderr.read() == b""
    assert lister.returncode == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_a_message() -> None:
    with Path("/dev/full").open("w") as full:
        done = module("list", stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 16
    assert done.stderr == b"error: standard output: can't be written: No space left on device.\n"


def test_help_is_complete() -> None:
    done = module("list", "--help", stdout=subprocess.PIPE)
    assert done.returncode == 0
    for option in (
        "--upstream", "--dialect", "--mask", "--arch", "--family", "--receipt", "--tier", "--profile", "--filter",
        "--where", "--filter-file", "--shard", "--format",
    ):  # fmt: skip
        assert option.encode() in done.stdout

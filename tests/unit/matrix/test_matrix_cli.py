"""Commands of the matrix: output of list, count and show."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from ckpm.matrix.dialects import dialect
from ckpm.matrix.options import Parser, add_selection_options, selection_from
from ckpm.matrix.selection import Selection, select
from tests.unit.matrix.matrix_samples import ABSENT, GROUP, NEWEST
from tests.unit.shared import Run

ROOT = Path(__file__).parents[3]


def test_list_names_default_upstream_arch_and_family(run: Run) -> None:
    code, out, err = run("list")
    assert (code, err) == (0, "")
    expected = select(dialect("ck-2025-11"), Selection(archs=("gfx950",)))
    assert out.splitlines() == [key.name for key in expected]
    assert len(expected) == 384


def test_list_as_json_and_csv_holds_all_fields(run: Run) -> None:
    options = ("--where", "key.lse", "--receipt", "200", "--tier", "smoke")
    expected = select(
        dialect("ck-2025-11"), Selection(archs=("gfx950",), where=("key.lse",), receipt=200, tier="smoke")
    )
    code, out, _ = run("list", *options, "--format", "json")
    assert (code, json.loads(out)) == (0, [key.row() for key in expected])
    code, out, _ = run("list", *options, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert (code, [row["name"] for row in rows], list(rows[0])) == (
        0,
        [key.name for key in expected],
        [*expected[0].row()],
    )


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
def test_list_with_options_selects_kernels(run: Run, options: tuple[str, ...], count: int) -> None:
    code, out, err = run("list", *options)
    assert (code, len(out.splitlines()), err) == (0, count, "")


def test_default_tier_is_entry_points_choice() -> None:
    parser = Parser()
    add_selection_options(parser, tier="smoke")
    assert selection_from(parser.parse_args([]))[1] == Selection(archs=("gfx950",), tier="smoke")
    assert selection_from(parser.parse_args(["--tier", "full"]))[1].tier == "full"


def test_list_beside_unread_checkout_names_its_upstream(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CK_ROOT", "/rocm-libraries")
    code, out, err = run("list", "--tier", "smoke")
    assert (code, len(out.splitlines())) == (0, 10)
    assert err.startswith("note: CK_ROOT is set, but this command reads no source tree: its kernels are those of aiter")
    assert run("list", "--upstream", "aiter", "--tier", "smoke") == (0, out, "")


def test_count_is_table_with_reason_for_nothing(run: Run) -> None:
    code, out, err = run("count", "--arch", "gfx90a,gfx950,gfx1100", "--receipt", "200")
    assert (code, err) == (0, "")
    assert out == (
        "family         gfx90a  gfx950  gfx1100  distinct\n"
        "batch_prefill     128     128        0       128\n"
        "total             128     128        0       128\n" + ABSENT
    )


def test_count_as_data(run: Run) -> None:
    code, out, _ = run("count", "--arch", "gfx950,gfx1100", "--format", "json")
    assert code == 0
    assert json.loads(out) == [
        {"family": "batch_prefill", "arch": "gfx950", "count": 384, "reason": ""},
        {"family": "batch_prefill", "arch": "gfx1100", "count": 0, "reason": ABSENT.rstrip()},
    ]
    assert run("count", "--format", "csv")[1] == "family,arch,count,reason\nbatch_prefill,gfx950,384,\n"


@pytest.mark.parametrize("shard", [(), ("--shard", "2/3")])
def test_count_is_as_long_as_list(run: Run, shard: tuple[str, ...]) -> None:
    options = ("--dialect", "rocm-libraries-2026", "--arch", "gfx942,gfx950", "--tier", "smoke", *shard)
    table = [line.split() for line in run("count", *options)[1].splitlines()]
    assert int(table[1][-1]) == len(run("list", *options)[1].splitlines())
    for column, arch in enumerate(("gfx942", "gfx950"), 1):
        alone = run("list", "--dialect", "rocm-libraries-2026", "--arch", arch, "--tier", "smoke", *shard)[1]
        assert int(table[1][column]) == len(alone.splitlines())


def test_count_of_empty_receipt_is_zero(run: Run) -> None:
    # upstream's receipt 100 asks for batch mode, which batch prefill no longer has
    code, out, _ = run("count", "--dialect", "rocm-libraries-2026", "--receipt", "100")
    assert (code, out.splitlines()[1].split()) == (0, ["batch_prefill", "0", "0"])


@pytest.mark.parametrize(("command", "output"), [(("list",), ""), (("list", "--format", "json"), "[]\n")])
def test_archs_without_kernels_are_no_error(run: Run, command: tuple[str, ...], output: str) -> None:
    assert run(*command, "--arch", "gfx1100") == (0, output, ABSENT)


def test_mixed_list_reports_which_arch_adds_nothing(run: Run) -> None:
    code, out, err = run("list", "--arch", "gfx1100,gfx950")
    assert (code, len(out.splitlines()), err) == (0, 384, ABSENT)


def test_show_prints_fields_receipts_and_profiles(run: Run) -> None:
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


def test_show_as_data_agrees_with_what_receipts_list(run: Run) -> None:
    row = json.loads(run("show", NEWEST, "--dialect", "rocm-libraries-2026", "--format", "json")[1])
    assert row["name"] == NEWEST
    for receipt in (0, 2, 4, 100, 200, 600, 700, 800, 888):
        selection = Selection(archs=("gfx950",), receipt=receipt, filters=(NEWEST,))
        assert (receipt in row["receipts"]) == bool(select(dialect("rocm-libraries-2026"), selection))
    assert run("show", GROUP, "--format", "csv")[1].startswith(f"field,value\nname,{GROUP}\nfamily,batch_prefill\n")


def test_export_to_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "keys.csv"
    assert run("list", "--tier", "smoke", "--format", "csv", "--output", str(file)) == (0, "", "")
    assert len(file.read_text().splitlines()) == 1 + len(run("list", "--tier", "smoke")[1].splitlines())
    assert list(tmp_path.iterdir()) == [file]


def test_module_runs_and_imports_no_other_package_or_room() -> None:
    code = (
        "import sys, runpy; sys.argv[1:] = ['count']\n"
        "try: runpy.run_module('ckpm', run_name='__main__')\n"
        "except SystemExit as end: assert end.code == 0\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    imported = set(done.stdout.splitlines()[-1].split())
    packages = {name.partition(".")[0] for name in imported} - {*sys.stdlib_module_names, "_distutils_hack"}
    assert {name for name in packages if name in ("rich", "jinja2", "pytest", "elftools", "msgpack", "numpy")} == set()
    rooms = {name.split(".")[1] for name in imported if name.startswith("ckpm.")}
    assert rooms == {"base", "matrix", "commands"}
    assert "yaml" in packages
    assert not packages & {"tests", "ckpm_emulator"}

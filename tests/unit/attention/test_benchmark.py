"""Benchmarks of sweeps: which kernels run on which shapes, from which library, and what is written down.

The column list is the one of the tile engine's README (rocm-libraries pull request 5260).
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpm import commands as cli
from ckpm.attention.tuning import TuningDatabase
from ckpm.base.errors import DeviceError, LaunchError, RecordError, UsageError, WhereError
from ckpm.base.files import StoppedError
from ckpm.kernels.families.libraries import host, library_with
from ckpm.matrix.configurations.sweeps import read_sweep
from ckpm.matrix.dialects import dialect
from ckpm.matrix.keys import Key
from ckpm.matrix.problems.matching import Matcher
from ckpm.matrix.problems.testing import ListedShape, from_shape, parse_shape, shapes
from ckpm.matrix.selection import Selection, select, take_shard
from ckpm.reports.page.figure_tables import best_kernels
from ckpm.reports.page.inputs import gather
from ckpm.timing import machine
from ckpm.timing.sweeps import command, running, sweep_request
from ckpm.timing.sweeps.cases import FAMILIES, SweepCase, cases, not_laid_out, own_cases, tensors
from ckpm.timing.sweeps.command import tune
from ckpm.timing.sweeps.results import COLUMNS, SweepResults, as_csv, best, filter_keys, identity, merge_results
from ckpm.timing.sweeps.running import describe, rates
from ckpm.timing.sweeps.sweep_request import layers
from tests.unit.attention.fakes import FakeDevice

ROOT = Path(__file__).parents[3]
CONFIG = ROOT / "tests/sweeps/fwd_ci.json"
DIALECT = "ck-2025-11"
SMOKE = shapes("smoke")
DOCUMENTED = (
    *("problem_name", "batch", "seqlen_q", "seqlen_k", "nhead_q", "nhead_k", "hdim_q", "hdim_v", "dtype"),
    *("kernel", "family", "mode", "pipeline", "tile_m0", "tile_n0", "tile_k0"),
)
FILTERABLE = (
    *("data_type", "mode", "hdim_q", "hdim_v", "pipeline", "tile_m0", "tile_n0", "tile_k0"),
    *("pad_s", "pad_sk", "pad_d", "pad_dv", "mask", "bias", "lse", "dropout", "logits"),
    *("sink", "skip_min_seqlen_q", "qscale", "paged_kv", "rope", "deterministic", "dbias", "dropout_variant"),
)


def swept(config: str | Path = CONFIG) -> list[Key]:
    sweep = read_sweep(Path(config))
    return select(dialect(DIALECT), Selection(archs=("gfx950",), families=sweep.families, where=sweep.where))


KEYS = swept()
CI = cases(KEYS, SMOKE)
# in dispatch order, as selections are
SOME = st.sets(st.integers(0, len(KEYS) - 1), min_size=1).map(lambda drawn: [KEYS[at] for at in sorted(drawn)])


def test_sweep_without_category_runs_each_kernel_once() -> None:
    cases = own_cases(KEYS, parse_shape(sweep_request.SIZES))
    assert [case.key for case in cases] == KEYS
    for case in cases:
        assert Matcher([case.key])("fwd", case.shape).kernels == (case.key,)
        assert (case.shape.lse, case.shape.dropout > 0, case.shape.mode) == (
            case.key.lse,
            case.key.dropout,
            case.key.mode,
        )
        assert not_laid_out(case) == ""
    by_name: dict[str, set[tuple[object, ...]]] = {}
    for case in cases:
        problem = (case.key.lse, case.key.dropout, case.key.logits, case.key.skip, case.key.hdim_q, case.shape.seqlen_k)
        by_name.setdefault(case.shape.name, set()).add(problem)
    assert all(len(problems) == 1 for problems in by_name.values())  # only kernels of one problem are compared


@pytest.mark.parametrize("name", ["ck-2025-11", "rocm-libraries-2026-09", "ckpm-serving"])
@pytest.mark.parametrize("family", ["fwd_splitkv", "batch_prefill"])
def test_kernels_of_other_pages_or_layouts_are_of_other_problems(name: str, family: str) -> None:
    """Only kernels that could serve the same call are compared: with its page size, layout and table."""
    where = ("key.hdim_q == 128 and key.dtype == 'bf16' and key.mode == 'group'",)
    keys = select(dialect(name), Selection(archs=("gfx950",), families=(family,), where=where))
    served: dict[str, set[tuple[object, ...]]] = {}
    for case in (*own_cases(keys, parse_shape(sweep_request.SIZES)), *cases(keys, SMOKE)):
        key = case.key
        pages = bool(key.paged_kv), key.page_size, key.kv_layout, key.kv_table
        served.setdefault(case.shape.name, set()).add(pages)
    assert served
    assert [group for group in served.values() if len(group) > 1] == []


def test_sweep_with_category_runs_only_shapes_that_kernels_serve() -> None:
    identities = {case.identity for case in CI}
    by_hand = {
        (shape.name, key.name)
        for shape in SMOKE
        if shape.name.startswith("fwd/CK_Tiny_Sequences")
        for key in KEYS
        # fp16, head dims 128, no mask or LSE, a length of keys under a tile, which only padding kernels take
        if (shape.dtype, shape.mask) == ("fp16", "no") and key.hdim_q == 128 and "_psskddv_" in key.name
        if "_nlogits_nbias_nmask_nlse_ndropout_nskip_" in key.name
    }
    assert by_hand
    assert {identity for identity in identities if identity[0].startswith("fwd/CK_Tiny_Sequences")} == by_hand


@settings(max_examples=15, deadline=None)
@given(SOME, st.integers(1, 7))
def test_cases_are_complete_over_shards(keys: list[Key], count: int) -> None:
    whole = sorted(case.identity for case in cases(keys, SMOKE))
    parts = [take_shard(keys, (at, count)) for at in range(1, count + 1)]
    assert sorted(case.identity for part in parts for case in cases(keys, SMOKE, part)) == whole


@settings(max_examples=15, deadline=None)
@given(SOME)
def test_each_kernel_is_alone_with_its_signature_in_one_library(keys: list[Key]) -> None:
    """No shape of either mode has two kernels of a library to choose from, so dispatch must take the one meant."""
    split = layers(keys)
    assert sorted(key.name for layer in split for key in layer) == sorted(key.name for key in keys)
    for layer in split:
        for case in own_cases(layer, parse_shape(sweep_request.SIZES)):
            assert Matcher(layer)("fwd", case.shape).kernels == (case.key,)


def test_libraries_whose_launches_take_name_are_not_split() -> None:
    keys = select(dialect(DIALECT), Selection(archs=("gfx950",), where=("key.hdim_q == 128",)))
    assert layers(keys) == (tuple(keys),)


def test_every_library_of_split_kv_has_second_stage() -> None:
    families = ("fwd_splitkv", "fwd_splitkv_combine")
    where = ("key.dtype == 'fp16' and key.hdim_v == 128 and key.mode == 'batch'",)
    keys = select(dialect(DIALECT), Selection(archs=("gfx950",), families=families, where=where))
    keys.sort(key=lambda key: key.family)  # the first stage first
    second = {key for key in keys if key.family == families[1]}
    assert len(second) > 0
    assert all(second <= set(layer) for layer in layers(keys))


def test_columns_are_documents() -> None:
    assert COLUMNS[: len(DOCUMENTED)] == DOCUMENTED
    times = COLUMNS.index("latency_ms")
    assert COLUMNS[times : times + 3] == ("latency_ms", "tflops", "bandwidth_gb_s")
    assert set(FILTERABLE) - {"data_type"} <= set(COLUMNS)
    assert len(set(COLUMNS)) == len(COLUMNS)


def test_rows_name_their_shape_and_their_kernel() -> None:
    case = next(case for case in CI if case.shape.name.startswith("fwd/CK_Asymmetric_Hdim_Small"))
    (row,) = csv.DictReader(io.StringIO(as_csv([describe(case)]).decode()))
    assert (row["hdim_q"], row["kernel_hdim_q"], row["dtype"], row["mask"], row["lse"]) == (
        *("16", str(case.key.hdim_q), "fp16", "no", "false"),
    )
    assert row["latency_ms"] == ""
    assert case.key.tile.bm0 == int(row["tile_m0"])


def test_rates_are_of_shape() -> None:
    shape = ListedShape(
        batch=2, seqlen_q=1000, seqlen_k=1000, nhead_q=4, nhead_k=2, hdim_q=128, hdim_v=128, dtype="fp16"
    )
    # two products of 2 * 8 heads * 10^6 * 128 flop in 1 ms; Q and O of 8 heads, K and V of 4, 2 bytes each
    assert rates(shape, 1.0) == {
        "latency_ms": 1.0,
        "tflops": pytest.approx(4.096),
        "bandwidth_gb_s": pytest.approx(24 * 1000 * 128 * 2 / 1e6),
    }


def test_filters_speak_tile_engines_words(tmp_path: Path) -> None:
    file = tmp_path / "filter.py"
    file.write_text("def filter_config(c):\n    return c.lse and not c.skip_min_seqlen_q\n")
    kept = filter_keys(KEYS, ["c.hdim_q == 128 and c.pipeline == 'qr_async'", "c.mode == 'batch'"], [file])
    assert kept == [
        key for key in KEYS if "_d128_fp16_batch_" in key.name and "_lse_" in key.name and "_nskip_" in key.name
    ]
    assert kept
    for name in FILTERABLE:
        getattr(identity(KEYS[0]), name)
    with pytest.raises(WhereError, match=r"c\.hdim"):
        filter_keys(KEYS, ["c.hdim == 128"], [])
    with pytest.raises(WhereError, match=r"^--where .*: c\.hdim_q is a number, '128' is text"):
        filter_keys(KEYS, ["c.hdim_q == '128'"], [])
    file.write_text("def keep(key):\n    return True\n")
    with pytest.raises(UsageError, match=r"no function filter_config\(c\)"):
        filter_keys(KEYS, [], [file])


def results(rows: int = 2, shard: str = "1/1", **changes: Any) -> SweepResults:
    table = [{**describe(case), "dispatch_order": at, "modelled_cycles": 9 - at} for at, case in enumerate(CI[:rows])]
    facts = {"arch": "gfx950", "category": "smoke", "shard": shard, "device": "emulator"}
    return SweepResults(**{"request": facts, "kernels": 3, "cases": rows, "rows": tuple(table), **changes})


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    written = results(left_out={("shape", "kernel"): "why"}, cases=3)
    written.write(tmp_path / "r.json")
    assert SweepResults.read(tmp_path / "r.json") == written
    document = json.loads((tmp_path / "r.json").read_text())
    wanted = {"arch": "gfx950", "category": "smoke", "total_kernels": 3, "total_measurements": 2}
    assert wanted.items() <= document["metadata"].items()
    assert document["metadata"]["shapes_benchmarked"] == len({row["problem_name"] for row in document["results"]})


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"format": 1', '"format": 2'),
        lambda text: text.replace('"kernel":', '"colonel":'),
        lambda text: text.replace('"total_cases": 2', '"total_cases": "2"'),
        lambda text: text.replace('"mode": "batch"', '"mode": ""'),
        lambda text: text.replace('"dispatch_order": 1', '"dispatch_order": "x"'),
        lambda text: text.replace('"modelled_cycles": 9', '"modelled_cycles": 0'),
        lambda text: text.replace('"modelled_cycles": 9', '"modelled_cycles": 1e308'),
        lambda text: text.replace('"modelled_cycles": 9', '"modelled_cycles": 1e-308'),
        lambda text: text.replace('"shard": "1/1"', '"shard": "1/x"'),
        lambda text: text.replace('"shard"', '"sherd"'),
    ],
)
def test_damaged_results_are_error(tmp_path: Path, damage: Any) -> None:
    file = tmp_path / "r.json"
    file.write_text(damage(results().text().decode()))
    with pytest.raises(RecordError, match=str(file)):
        SweepResults.read(file)


def leaves(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each object or list in a JSON value, with each of its indices or names."""
    for at in range(len(value)) if isinstance(value, list) else value if isinstance(value, dict) else ():
        yield value, at
        yield from leaves(value[at])


@pytest.mark.parametrize("odd", [None, "", "x", "9/9", -1, 0, 2.5, 1e308, True, [], {}], ids=str)
def test_any_wrong_value_is_error_or_changes_no_command(tmp_path: Path, odd: Any) -> None:
    folder = tmp_path / "benchmark"
    file = folder / "r.json"
    folder.mkdir()
    document = json.loads(results(left_out={("shape", "kernel"): "why"}, cases=3).text())
    refused = 0
    for container, at in list(leaves(document)):
        value, container[at] = container[at], odd
        file.write_text(json.dumps(document))
        container[at] = value
        codes = {cli.main(["sweep", "best", str(file), "--csv", str(tmp_path / "r.csv")])}
        best_kernels(gather(tmp_path))
        assert codes <= {0, 3}, at
        refused += codes == {3}
    assert refused > 9


def test_shards_are_merged_if_all_are_there_whole_and_of_one_run(tmp_path: Path) -> None:
    first, second = tmp_path / "1.json", tmp_path / "2.json"
    results(shard="1/2").write(first)
    results(3, shard="2/2").write(second)
    whole = merge_results([second, first])
    assert (len(whole.rows), whole.kernels, whole.finished) == (5, 6, True)
    with pytest.raises(RecordError, match="shard 2/2 are missing"):
        merge_results([first])
    with pytest.raises(RecordError, match="shard 1/2 is"):
        merge_results([first, first])
    results(cases=9, shard="2/2").write(second)
    with pytest.raises(RecordError, match="unfinished"):
        merge_results([first, second])
    results(request={**results(shard="2/2").request, "device": "hip"}).write(second)
    with pytest.raises(RecordError, match="device differs"):
        merge_results([first, second])
    results(shard="2/3").write(second)
    with pytest.raises(RecordError, match="shard differs"):
        merge_results([first, second])
    results(request={**results(shard="2/2").request, "program": "another"}).write(second)
    with pytest.raises(RecordError, match="program differs"):
        merge_results([first, second])


def timed_row(case: SweepCase, order: int, milliseconds: float, **more: Any) -> dict[str, Any]:
    return {**describe(case), "dispatch_order": order, "latency_ms": milliseconds, "library": "00", **more}


def test_default_is_first_in_dispatch_order_and_wrong_never_best(tmp_path: Path) -> None:
    name = next(case.shape.name for case in CI if sum(other.shape.name == case.shape.name for other in CI) == 3)
    batch = [case for case in CI if case.shape.name == name and case.key.mode == "batch"]
    group = [case for case in CI if case.shape.name == name and case.key.mode == "group"]
    rows = [timed_row(batch[1], 5, 1.0), timed_row(group[0], 9, 0.5), timed_row(batch[0], 2, 1.5)]
    answers = {answer.mode: answer for answer in best(rows)}
    assert (answers["batch"].kernel, answers["batch"].default) == (batch[1].key.name, batch[0].key.name)
    assert answers["batch"].behind == pytest.approx(0.5)
    assert (answers["group"].behind, answers["group"].compared) == (0, 1)
    wrong = [*rows[1:], timed_row(batch[1], 5, 1.0, agrees=False)]
    assert {answer.mode: answer.kernel for answer in best(wrong)}["batch"] == batch[0].key.name
    database = tmp_path / "t.db"
    assert tune(database, dataclasses.replace(results(), rows=tuple(rows)), CI) == 2
    problem = from_shape(batch[0].shape, "fwd")
    measurement = TuningDatabase(database).best(problem, "emulator", [case.key.name for case in batch])
    assert measurement is not None
    assert (measurement.kernel, measurement.value, measurement.unit) == (batch[1].key.name, 1.0, "ms")


class Bench:
    """A stand-in for libraries and a device. It lists the measured cases and acts on them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.measured: list[tuple[str, str]] = []
        self.stop_after = 10**6
        self.cells: dict[str, Any] = {"modelled_cycles": 7, "device": "emulator", "library": "00"}
        self.fails: Exception | None = None
        tree = SimpleNamespace(name="aiter", dialect=DIALECT, identity="tree", own=())
        monkeypatch.setattr(sweep_request, "locate", lambda *_, **__: tree)
        monkeypatch.setattr(sweep_request, "detect", lambda *_, **__: SimpleNamespace(identity="compiler"))
        monkeypatch.setattr(command, "libraries_of", lambda request, *_: list(range(len(layers(request.keys)))))
        monkeypatch.setattr(command, "choose", lambda *_: SimpleNamespace(kind="emulator", fault=lambda: None))
        monkeypatch.setattr(command, "open_bench", self.open_bench)
        monkeypatch.setattr(running, "measure", self.measure)

    def open_bench(self, layer: int, device: Any, request: Any) -> Any:
        return SimpleNamespace(keys=layers(request.keys)[layer], device=device)

    def measure(self, bench: Any, case: SweepCase, *, verify: bool) -> dict[str, Any]:
        if len(self.measured) == self.stop_after:
            raise KeyboardInterrupt
        self.measured.append(case.identity)
        if self.fails is not None:
            raise self.fails
        return self.cells | ({"agrees": True} if verify and "agrees" not in self.cells else {})


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    monkeypatch.chdir(tmp_path)
    return Bench(monkeypatch)


SMALL = ["sweep", "run", str(CONFIG), "--filter", "c.hdim_q == 128 and not c.logits", "--device", "emulator"]


def test_run_without_gpu_is_refused_before_compiling(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def choose(*_: object) -> None:
        raise DeviceError("no GPU")

    monkeypatch.setattr(command, "choose", choose)
    monkeypatch.setattr(command, "libraries_of", lambda *_: pytest.fail("kernels were compiled for no GPU"))
    assert cli.main(SMALL) == DeviceError.exit_code
    monkeypatch.setattr(command, "libraries_of", lambda *_: [])
    assert cli.main([*SMALL, "--compile-only"]) == 0  # which needs no device


def test_ended_run_is_resumed(bench: Bench, tmp_path: Path) -> None:
    bench.stop_after = 10
    assert cli.main(SMALL) == 130
    file = tmp_path / "build/benchmark/fwd_ci-gfx950-aiter-one.json"
    assert len(SweepResults.read(file).rows) == 10
    bench.stop_after = 10**6
    assert cli.main([*SMALL, "--csv", "a.csv", "--json", "a.json"]) == 0
    wanted = [key.name for key in KEYS if key.hdim_q == 128 and not key.logits]
    assert sorted(name for _, name in bench.measured) == sorted(wanted)  # each once
    rows = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    assert {row["kernel"] for row in rows} == set(wanted)
    assert SweepResults.read(tmp_path / "a.json").finished
    assert cli.main(SMALL) == 0
    assert len(bench.measured) == len(wanted)  # nothing is left to be run


def test_run_beside_another_waits_for_its_results(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ckpm.base.processes.log.info", Mock(side_effect=StoppedError))  # in place of the wait

    def measure(*arguments: Any, **options: Any) -> dict[str, Any]:
        monkeypatch.setattr(running, "measure", bench.measure)
        with pytest.raises(StoppedError):
            command.run(cli.parser("sweep run").parse_args(SMALL[2:]))
        return bench.measure(*arguments, **options)

    monkeypatch.setattr(running, "measure", measure)
    assert cli.main(SMALL) == 0
    assert len(set(bench.measured)) == len(bench.measured) > 1


def test_compiling_alone_runs_nothing(bench: Bench) -> None:
    assert cli.main([*SMALL, "--compile-only"]) == 0
    assert bench.measured == []
    assert list(Path("build/benchmark").glob("*.json")) == []


def test_results_of_another_request_are_not_resumed(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(SMALL) == 0
    assert cli.main([*SMALL, "--verify"]) == 3
    assert "verify differs" in capsys.readouterr().err


def test_shards_of_run_make_whole(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    for at in (1, 2, 3):
        assert cli.main([*SMALL, "--shard", f"{at}/3", "--json", f"{at}.json"]) == 0
    assert len(set(bench.measured)) == len(bench.measured)
    assert cli.main(["sweep", "best", "3.json", "1.json", "2.json", "--json", "all.json"]) == 0
    whole = SweepResults.read(Path("all.json"))
    assert {str(row["kernel"]) for row in whole.rows} == {k.name for k in KEYS if k.hdim_q == 128 and not k.logits}
    assert cli.main(["sweep", "best", "3.json", "1.json"]) == 3
    assert "shard 2/3 are missing" in capsys.readouterr().err


def test_kernel_with_wrong_numbers_fails_run_after_all_others(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.cells["agrees"] = False
    assert cli.main([*SMALL, "--max-kernels", "3", "--verify"]) == 8
    assert len(bench.measured) == 3
    assert capsys.readouterr().err.count("differs from the reference") == 3


def test_defect_in_ledger_is_named_and_does_not_fail_run(bench: Bench) -> None:
    bench.cells["agrees"] = False
    line = ["sweep", "run", str(CONFIG), "--filter", "c.hdim_q == 192", "--max-kernels", "2", "--device", "emulator"]
    assert cli.main([*line, "--verify", "--json", "a.json"]) == 0
    assert {row["known_defect"] for row in SweepResults.read(Path("a.json")).rows} == {
        "v-overwrites-the-last-slice-of-k"
    }


@pytest.mark.parametrize(("message", "code"), [("unsupported: no such kernel", 9), ("hip_error: it died", 8)])
def test_refusal_is_reason_and_fault_failure(bench: Bench, message: str, code: int) -> None:
    bench.fails = LaunchError(f"lib: kernel: {message}")
    assert cli.main([*SMALL, "--max-kernels", "1", "--json", "a.json"]) == code
    (why,) = SweepResults.read(Path("a.json")).left_out.values()
    assert message in why
    bench.fails = None
    # a refusal is kept, as all results are; a fault may be the machine's, and is tried again
    assert cli.main([*SMALL, "--max-kernels", "1"]) == (0 if code == 8 else code)


def test_fault_is_tried_again_only_after_all_other_cases(bench: Bench) -> None:
    """A case that ends the process each time would keep the others from being run."""
    file = Path("build/benchmark/fwd_ci-gfx950-aiter-one.json")
    line = [*SMALL, "--max-kernels", "2"]
    bench.fails, bench.stop_after = LaunchError("lib: kernel: hip_error: it died"), 1
    assert cli.main(line) == 130
    bench.fails, bench.stop_after = None, 10**6
    assert cli.main(line) == 8
    assert len(bench.measured) == len(set(bench.measured)) == 2
    assert cli.main(line) == 0
    assert bench.measured[2] == bench.measured[0]
    assert len(SweepResults.read(file).rows) == 2


@pytest.mark.parametrize("part", ["program", "model"])
def test_results_of_another_program_are_not_resumed(
    bench: Bench, part: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The kernels' templates and the emulator are parts of the program; the model's numbers are in a table."""
    assert cli.main([*SMALL, "--max-kernels", "1"]) == 0
    if part == "program":
        monkeypatch.setattr(sweep_request, "program_digest", lambda: "another")
    else:
        table = tmp_path / "machine.yaml"
        table.write_text(machine.TABLE.read_text().replace("doubtful: true", "doubtful: false", 1))
        monkeypatch.setattr(machine, "TABLE", table)
    assert cli.main([*SMALL, "--max-kernels", "1"]) == 3
    assert f"{part} differs" in capsys.readouterr().err


def test_large_shapes_are_left_out_on_emulator_with_reason(bench: Bench) -> None:
    line = [*SMALL, "--category", "smoke", "--most-instructions", "100000", "--json", "a.json"]
    assert cli.main(line) == 0
    stored = SweepResults.read(Path("a.json"))
    assert stored.finished
    assert {row["problem_name"] for row in stored.rows}.isdisjoint(name for name, _ in stored.left_out)
    assert all("over --most-instructions 100000" in why for why in stored.left_out.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--max-kernels", "0"], "--max-kernels must be at least 1"),
        (["--shape", "hdim_q=64"], "'hdim_q' is none of batch"),
        (["--filter", "c.hdim_q == 7"], "no kernel"),
        (["--shard", "9999/9999"], "is empty: use fewer shards"),
    ],
)
@pytest.mark.usefixtures("bench")
def test_meaningless_options_are_one_error(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["sweep", "run", str(CONFIG), *options]) != 0
    assert message in capsys.readouterr().err


def launch_case(case: SweepCase, *, answer: str = "", verify: bool = False) -> tuple[dict[str, Any], FakeDevice]:
    """A case measured on a device that times every launch with 1.5 ms and writes nothing."""
    device = FakeDevice("hip")
    device.chosen = (answer or case.key.name,)
    library = device.load(
        Path("/nowhere", case.key.family, "libckpm.so"), host(library_with(case.key.family)).arguments
    )
    manifest: Any = SimpleNamespace(upstream="aiter", dialect=DIALECT, library_sha256="00ff")
    bench = running.SweepBench(device=device, library=library, manifest=manifest, keys=(case.key,), numbers=None)
    return running.measure(bench, case, verify=verify), device


@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_of_every_family_get_their_arguments(family: str) -> None:
    where = ("key.hdim_q == 128 and key.dtype in ('bf16', 'fp8bf16')",)
    keys = select(dialect(DIALECT), Selection(archs=("gfx950",), families=(family,), where=where))
    each = {(key.mode, key.bias, key.mask, key.paged_kv, key.dtype, key.vlayout): key for key in keys}
    small = parse_shape("batch=2,seqlen_q=8,seqlen_k=16,nhead_q=2,nhead_k=1")
    some = {case.key: case for case in own_cases(list(each.values()), small) if not not_laid_out(case)}
    assert len(some) > 4
    for case in some.values():
        cells, device = launch_case(case)
        assert cells["latency_ms"] == pytest.approx(1.5)
        arguments = device.launched[0]
        assert (arguments.batch, arguments.seqlen_q, arguments.hdim_q, arguments.has_lse) == (
            *(2, 8, case.key.hdim_q, int(case.key.lse)),
        )
        assert (arguments.is_group_mode, arguments.bias_type > 0) == (case.key.mode == "group", case.key.bias != "no")
        named = case.key.name if family == "batch_prefill" else None
        assert set(device.names) == {named}


def test_launch_of_another_kernel_measures_nothing() -> None:
    case = own_cases(KEYS, parse_shape(sweep_request.SIZES))[0]
    with pytest.raises(LaunchError, match="dispatch took another"):
        launch_case(case, answer="another")


def test_reference_of_dropout_takes_generators_bytes() -> None:
    case = next(case for case in own_cases(KEYS, parse_shape(sweep_request.SIZES)) if case.key.dropout)
    arrays = tensors(case, "gfx950", reference=True)
    s, values = case.shape, np.stack(arrays.more["random_values"])
    assert (values.shape, arrays.options.random_values) == ((s.batch, s.nhead_q, s.seqlen_q, s.seqlen_k), False)
    assert abs(np.mean(values) - 127.5) < 4  # uniform
    assert "random_values" not in tensors(case, "gfx950", reference=False).more


def test_numbers_that_were_never_written_do_not_agree() -> None:
    case = next(
        case for case in own_cases(KEYS, parse_shape(sweep_request.SIZES)) if case.key.lse and not case.key.dropout
    )
    cells, _ = launch_case(case, verify=True)
    assert cells["agrees"] is False
    assert not float(cells["tolerance_used"]) <= 1

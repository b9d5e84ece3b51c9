"""A benchmark's results: their columns, their file, and the best kernel of each shape.

The columns are CK's tile engine's, under its names and in its order, then ours. Times are a GPU's. Counts of an
emulator, and the cycles of the timing model, have columns of their own. The file is written after each case, so that an
interrupted run continues. A file with another ``asked`` is refused.

A shape in batch and in group mode is two problems. The default is the first kernel in dispatch order that ran on a
shape. A library with all of the benchmarked kernels would take it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ckpm.base.display import one_line
from ckpm.base.errors import RecordError, UsageError
from ckpm.base.files import write_atomically
from ckpm.base.records import Source, Value, as_text
from ckpm.base.rows import to_csv
from ckpm.base.tablefile import Text
from ckpm.matrix.dialects import FAMILIES
from ckpm.matrix.keys import CHOICES, Key
from ckpm.matrix.problems.serving import padding
from ckpm.matrix.selection import load_filter_file, parse_shard
from ckpm.matrix.where import compile_over

_MASKS = {"mask": "top_left", "causal": "top_left", "": "no"}
_WORDS = {
    **{name: CHOICES[name] for name in ("mode", "pipeline", "bias", "qscale", "rope")},
    "family": FAMILIES, "data_type": CHOICES["dtype"], "mask": ("no", "top_left", "generic"),
    "dropout_variant": CHOICES["dropout_impl"],
}  # fmt: skip


# Fields of the tile engine's FmhaKernelConfig
FIELDS = (
    *("family", "data_type", "mode", "pipeline", "hdim_q", "hdim_v", "tile_m0", "tile_n0", "tile_k0", "tile_n1"),
    *("tile_k1", "tile_k0max", "pad_s", "pad_sk", "pad_d", "pad_dv", "mask", "bias", "lse", "dropout", "logits"),
    *("sink", "skip_min_seqlen_q", "qscale", "paged_kv", "rope", "deterministic", "dbias", "dropout_variant"),
    *("block_per_cu", "name"),
)


def identity(key: Key) -> SimpleNamespace:
    """A kernel by FIELDS. Features that a family lacks are no, False or 0.

    A mask of the simplified set, which serves every window, is called top_left as in configurations.
    """
    pads, tile = padding(key.pad), key.tile
    return SimpleNamespace(
        family=key.family, data_type=key.dtype, mode=key.mode, pipeline=key.pipeline, hdim_q=key.hdim_q,
        hdim_v=key.hdim_v, tile_m0=tile.bm0, tile_n0=tile.bn0, tile_k0=tile.bk0, tile_n1=tile.bn1, tile_k1=tile.bk1,
        tile_k0max=tile.bk0max, pad_s="s" in pads, pad_sk="sk" in pads, pad_d="d" in pads, pad_dv="dv" in pads,
        mask=_MASKS.get(key.mask, key.mask), bias=key.bias or "no", lse=key.lse, dropout=key.dropout,
        logits=key.logits, sink=bool(key.sink), skip_min_seqlen_q=bool(key.skip), qscale=key.qscale or "no",
        paged_kv=bool(key.paged_kv), rope=key.rope or "no", deterministic=bool(key.deterministic),
        dbias=bool(key.dbias), dropout_variant=key.dropout_impl or "no", block_per_cu=tile.occupancy, name=key.name,
    )  # fmt: skip


def filter_keys(keys: Sequence[Key], expressions: Sequence[str], files: Sequence[Path]) -> list[Key]:
    """The kernels that meet every expression over ``c.FIELD`` and every file's ``filter_config(c)``."""
    sample = vars(identity(keys[0])) if keys else {}
    names = tuple((f"c.{name}", _WORDS.get(name) or (type(sample[name]) if keys else object)) for name in FIELDS)
    tests: list[Callable[[SimpleNamespace], bool]] = [compile_over(text, names, "--where ") for text in expressions]
    tests += [load_filter_file(file, "filter_config", "c") for file in files]
    return [key for key in keys if all(test(identity(key)) for test in tests)]


Cell = str | int | float | bool | None
Row = Mapping[str, Cell]

SHAPE = ("batch", "seqlen_q", "seqlen_k", "nhead_q", "nhead_k", "hdim_q", "hdim_v", "dtype")
RENAMED = {"name": "kernel", "data_type": "kernel_dtype", "hdim_q": "kernel_hdim_q", "hdim_v": "kernel_hdim_v"}
_FIRST = ("kernel", "family", "mode", "pipeline", "tile_m0", "tile_n0", "tile_k0")
_NAMED = tuple(RENAMED.get(name, name) for name in FIELDS)
TIMES = ("latency_ms", "tflops", "bandwidth_gb_s")
COUNTS = (
    *("instructions", "mfma_flops", "mfma_cycles", "global_load_bytes", "global_store_bytes", "lds_bank_conflicts"),
    *("workgroups", "waves"),
)
OURS = (
    "dispatch_order",
    "layout",
    "device",
    *COUNTS,
    "modelled_cycles",
    "agrees",
    "tolerance_used",
    "known_defect",
    "library",
)
COLUMNS = (*("problem_name", *SHAPE, *_FIRST), *(name for name in _NAMED if name not in _FIRST), *TIMES, *OURS)


def as_csv(rows: Sequence[Row]) -> bytes:
    """CSV text with a line of names; cells that a row lacks are empty."""
    return to_csv(COLUMNS, [{**dict.fromkeys(COLUMNS), **row} for row in rows]).encode()


UNITS = {"latency_ms": "ms", "modelled_cycles": "modelled cycles"}  # columns by which kernels are compared
FORMAT = 1
_LEAST = 1e-18  # of a time or of cycles: a ratio of two is finite
_SHOWN = 200  # characters of the missing shards
_REMEDY = "Run the benchmark again, with another --work or without this file."
_WHOLE = "1/1"
FAULT = "fault: "  # begins the reason of a case that was left out because its launch faulted


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResults:
    """Results of a run, with the facts that determine them (``asked``).

    ``rows`` are the cases that ran. ``left_out`` maps problem and kernel of the other cases to a reason. ``cases`` is
    the number of all cases.
    """

    request: Mapping[str, str]
    kernels: int
    cases: int
    rows: Sequence[Row] = ()
    left_out: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        return len(self.rows) + len(self.left_out) == self.cases

    @property
    def failing(self) -> tuple[str, ...]:
        """Launches that faulted, then kernels whose numbers differ without an entry of the ledger."""
        faults = [f"{name}: {kernel}: {why}" for (name, kernel), why in self.left_out.items() if why.startswith(FAULT)]
        wrong = [
            f"{row['problem_name']}: {row['kernel']}: differs from the reference"
            for row in self.rows
            if row.get("agrees") is False and not row.get("known_defect")
        ]
        return (*faults, *wrong)

    def metadata(self) -> dict[str, Any]:
        """The tile engine's fields, then ours."""
        return {
            "arch": self.request["arch"],
            "category": self.request["category"],
            "total_kernels": self.kernels,
            "shapes_benchmarked": len({row["problem_name"] for row in self.rows}),
            "total_measurements": len(self.rows),
            "total_cases": self.cases,
            "finished": self.finished,
        }

    def text(self) -> bytes:
        left_out = [
            {"problem_name": problem, "kernel": kernel, "reason": why}
            for (problem, kernel), why in self.left_out.items()
        ]
        return as_text(
            {
                "format": FORMAT,
                "metadata": self.metadata(),
                "request": dict(self.request),
                "results": [dict(row) for row in self.rows],
                "left_out": left_out,
            }
        )

    def write(self, file: Path) -> None:
        """Replace ``file`` in one step."""
        write_atomically(file, self.text())

    @classmethod
    def read(cls, file: Path) -> SweepResults:
        """Read a file of results. Raise RecordError, with the field, if it is damaged."""
        document = Source(file, "results of a benchmark", _REMEDY, RecordError).read()
        if not isinstance(document.value, dict) or document.value.get("format") != FORMAT:
            raise document.source.fail(f"no results of format {FORMAT}")
        metadata = document.get("metadata")
        left_out = [row.record(_LeftOut) for row in document.get("left_out").items()]
        return cls(
            request=_request(document.get("request")),
            kernels=metadata.get("total_kernels").count(),
            cases=metadata.get("total_cases").count(),
            rows=tuple(map(_row, document.get("results").items())),
            left_out={(case.problem_name, case.kernel): case.reason for case in left_out},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _LeftOut:
    problem_name: Text
    kernel: Text
    reason: Text


def _request(value: Value) -> dict[str, str]:
    for name in ("arch", "category", "device"):
        value.get(name).nonempty_text()
    shard = value.get("shard")
    try:
        parse_shard(shard.text())
    except UsageError:
        raise shard.fail(f"'{shard.value}' is not a shard I/N") from None
    return value.texts()


def _row(value: Value) -> Row:
    value.allow(COLUMNS)
    for name in ("problem_name", "kernel", "mode"):
        value.get(name).nonempty_text()
    value.get("dispatch_order").count()
    value.optional("agrees", Value.truth, None)
    for name in UNITS:
        if not _LEAST < value.optional(name, Value.number, 1) < 1 / _LEAST:
            raise value.get(name).fail(f"must be over {_LEAST} and under {1 / _LEAST:.0g}")
    return value.record(dict[str, Cell])


def _of_run(request: Mapping[str, str]) -> dict[str, str]:
    """The facts that the shards of one run share: all, and of the shard the number of shards."""
    return {**request, "shard": request["shard"].partition("/")[2]}


def merge_results(files: Sequence[Path]) -> SweepResults:
    """Merge the results of all shards of one run. Refuse unfinished, different, repeated and missing shards."""
    parts = [SweepResults.read(file) for file in files]
    first, run = parts[0], _of_run(parts[0].request)
    shards: dict[str, Path] = {}
    for file, part in zip(files, parts, strict=True):
        other = _of_run(part.request)
        if differing := [name for name in {**run, **other} if run.get(name) != other.get(name)]:
            raise RecordError(f"{file}: of another run than {files[0]}: {differing[0]} differs.", kind="benchmark")
        if not part.finished:
            raise RecordError(f"{file}: unfinished: run its benchmark again, which then goes on.", kind="benchmark")
        if part.request["shard"] in shards:
            raise RecordError(
                f"{file}: shard {part.request['shard']} is {shards[part.request['shard']]}, too.", kind="benchmark"
            )
        shards[part.request["shard"]] = file
    numbers = {parse_shard(shard)[0] for shard in shards}
    if missing := [f"{at}/{run['shard']}" for at in range(1, int(run["shard"]) + 1) if at not in numbers]:
        text = one_line(", ".join(missing), _SHOWN)
        raise RecordError(f"{files[0]}: the results of shard {text} are missing.", kind="benchmark")
    return SweepResults(
        request={**first.request, "shard": _WHOLE},
        kernels=sum(part.kernels for part in parts),
        cases=sum(part.cases for part in parts),
        rows=tuple(row for part in parts for row in part.rows),
        left_out={key: why for part in parts for key, why in part.left_out.items()},
    )


_Measured = tuple[Row, str, float]  # with its unit and number


@dataclass(frozen=True, slots=True, kw_only=True)
class BestKernel:
    """The best kernel of one problem, with the least value in ``unit``, and the default kernel with its value."""

    problem: str
    mode: str
    kernel: str
    value: float
    unit: str
    default: str
    default_value: float
    compared: int

    @property
    def behind(self) -> float:
        """The time that the default takes beyond the best, as a fraction of the best."""
        return self.default_value / self.value - 1


def best(rows: Sequence[Row]) -> tuple[BestKernel, ...]:
    """The best kernel of each problem that has a time, or on the emulator modelled cycles.

    Rows whose numbers are wrong don't count.
    """
    problems: dict[tuple[str, str], list[_Measured]] = {}
    for row in rows:
        if row.get("agrees") is not False and (value := value_of(row)) is not None:
            problems.setdefault((str(row["problem_name"]), str(row["mode"])), []).append((row, *value))
    return tuple(_of_problem(name, mode, group) for (name, mode), group in problems.items())


def value_of(row: Row) -> tuple[str, float] | None:
    """A row's unit and number."""
    for column, unit in UNITS.items():
        if isinstance(number := row.get(column), int | float):
            return unit, float(number)
    return None


def _of_problem(problem: str, mode: str, measured: Sequence[_Measured]) -> BestKernel:
    least, unit, value = min(measured, key=lambda measurement: measurement[2])
    default, _, default_value = min(measured, key=lambda measurement: int(measurement[0]["dispatch_order"] or 0))
    return BestKernel(
        problem=problem, mode=mode, kernel=str(least["kernel"]), value=value, unit=unit,
        default=str(default["kernel"]), default_value=default_value, compared=len(measured),
    )  # fmt: skip

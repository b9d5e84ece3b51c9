"""V2 and V3 of the documents' tables: what is launched for a row, and what its figures become; and CK's own two."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckpm.base.errors import InconclusiveError
from ckpm.bench import emulated
from ckpm.matrix.dialects import dialect
from ckpm.matrix.keys import is_v3
from ckpm.matrix.problems.case import SuiteCase
from ckpm.matrix.selection import Selection, select
from ckpm.timing import modelling, tables
from ckpm.timing.record import Copies, Timed
from tests.unit.reports.timing_samples import make_timed

KEYS = tuple(
    select(dialect("prefill-v3"), Selection(archs=("gfx950",), tier="full", where=(tables.WHERE,)))
)  # fmt: skip
Launched = list[tuple[SuiteCase, str, modelling.ModelRequest]]


class Place:
    """A library whose launches have ``more`` workgroups than tiles.

    V2 takes three cycles a key, V3 two. At 8,192 keys V2 takes a fifth less to a tenth more, by its start offset.
    """

    keys = KEYS

    def __init__(self, launched: Launched, more: int = 0) -> None:
        self.launched, self.more = launched, more

    def provenance(self, tier: str) -> dict[str, str]:
        return {"tier": tier, "arch": "gfx950"}

    def model(self, problem: SuiteCase, named: str, options: modelling.ModelRequest) -> Timed | str:
        self.launched.append((problem, named, options))
        key = next(key for key in KEYS if key.name == named)
        tiles = -(-problem.seqlens_q[0] // key.tile.bm0) * problem.nhead_q
        cycles = problem.seqlens_k[0] * (2 if is_v3(key.pipeline) else 3)
        least, most = (8, 11) if problem.seqlens_k[0] == 8192 and not is_v3(key.pipeline) else (10, 10)
        copies = Copies(cycles=cycles, least=cycles * least // 10, most=cycles * most // 10)
        return make_timed(
            problem=problem.name, kernel=named, cycles=copies.most, launched=(tiles + self.more) * options.heads,
            copies=(copies,) if options.offsets else (),
        )  # fmt: skip


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Launched:
    rows: Launched = []
    monkeypatch.setattr(tables, "library", lambda *_: Path("lib.so"))
    monkeypatch.setattr(tables, "open_library", lambda *_: Place(rows))
    return rows


def test_row_runs_last_tile_of_one_kv_head_on_both_versions(launched: Launched) -> None:
    """The last tile is V3's first workgroup and V2's last."""
    problems = tables.model("*-h40q37k", "embedded", Path("work")).problems
    assert [(problem.problem, problem.launched) for problem in problems] == [
        ("performance/published_fp8.tensor-h40q37k", 148 * 40), ("performance/published_fp8.tensor-h40q37k", 296 * 40),
        ("performance/published_fp8.page-h40q37k", 148 * 40), ("performance/published_fp8.page-h40q37k", 296 * 40),
    ]  # fmt: skip
    assert [(p.nhead_q, p.nhead_k, p.mask, options.workgroup) for p, _, options in launched] == [
        (1, 1, "no", workgroup) for workgroup in (0, 295) * 2
    ]
    assert ["_v3_" in name for _, name, _ in launched] == [True, False] * 2


def test_row_with_one_kv_head_runs_unchanged(launched: Launched) -> None:
    tables.model("*.tensor-h16q65k", "embedded", Path("work"))
    assert [(p.nhead_q, p.nhead_k, options.heads, options.workgroup) for p, _, options in launched] == [
        (16, 1, 1, 0), (16, 1, 1, 511),
    ]  # fmt: skip


def test_grid_of_other_than_workgroup_tile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "library", lambda *_: Path("lib.so"))
    monkeypatch.setattr(tables, "open_library", lambda *_: Place([], more=1))
    with pytest.raises(InconclusiveError, match=r"tensor-q1k: 25 workgroups instead of one for each tile"):
        tables.model("*.tensor-q1k", "embedded", Path("work"))


def test_model_failed_launch_or_missing_kernel_raises(launched: Launched, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InconclusiveError, match=r"no problem fits '\*nonsense\*'"):
        tables.model("*nonsense*", "embedded", Path("work"))
    with monkeypatch.context() as lacking:
        lacking.setattr(Place, "keys", [key for key in KEYS if is_v3(key.pipeline)])
        with pytest.raises(InconclusiveError, match=r"tensor-q1k: no kernel with pipeline qr_async"):
            tables.model("*.tensor-q1k", "embedded", Path("work"))
    assert len(launched) == 1  # V3
    monkeypatch.setattr(Place, "model", lambda *_: "the launch failed: why")
    with pytest.raises(InconclusiveError, match=r"tensor-q1k: the launch failed: why"):
        tables.model("*.tensor-q1k", "embedded", Path("work"))


def test_bench_shows_published_ratios(launched: Launched) -> None:
    """V2 takes 1.5 times as long here, if all is resident; 1.06 to 1.39 are the documents'. No target is met."""
    both = emulated.model_versions("embedded", Path("work"))
    assert [figure.measured for figure in both] == ["1.50, 1.50, 1.50 (1.20 to 1.65)"] * 2
    assert [figure.met for figure in both] == [None, None]
    assert [figure.target for figure in both] == [
        "published of CK's code: 1.11, 1.31, 1.39",
        "published of CK's code: 1.06, 1.22, 1.31",
    ]
    assert len(launched) == 2 * 6

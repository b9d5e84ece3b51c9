"""The ledger is strict: a listed defect must happen, an expired one must be looked at, a mistake has file and line."""

from __future__ import annotations

import dataclasses
import datetime
import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpm.base.errors import CheckFailedError
from ckpm.matrix.dialects import dialect, upstreams
from ckpm.matrix.enumeration import enumerate_keys
from ckpm.matrix.problems.case import SUITES, SuiteCase
from ckpm.matrix.problems.ledger import LEDGER, Ledger, read_ledger, source
from ckpm.matrix.problems.performance import performance_problems
from ckpm.matrix.problems.problem import Problem, mask_corner
from ckpm.matrix.problems.serving import serving_kernels
from ckpm.matrix.problems.tables import problems
from ckpm.matrix.published import stored_lists
from ckpm.matrix.sessions import FAMILY_SUITE
from tests.unit.enumerated import stored_names
from tests.unit.matrix.own_lists import OWN
from tests.unit.shared import replace_text, table_complaint

TEXT = """# a comment
entries:
  big_pools:
    problems: [large-kv/lines.*, large-kv/scattered.g6-*]
    upstreams: [aiter, flash-attn]
    archs: ["*"]
    outcome: [wrong, fault]
    reason: offsets of 32 bits
    link: https://github.com/ROCm/aiter/issues/2517
    expires: 2027-06-30
  over_read:
    problems: page-fault/*
    upstreams: aiter
    archs: gfx950
    outcome: fault
    reason: the table is read past its end
    expires: 2026-12-31
"""


def make_case(name: str, **fields: Any) -> SuiteCase:
    """Make a problem of that name."""
    suite, _, rest = name.partition("/")
    return SuiteCase(name=name, suite=suite, tier="smoke", group=rest.partition(".")[0], **fields)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    file = tmp_path / "ledger.yaml"
    file.write_text(TEXT)
    return read_ledger(file)


def test_ledger_of_house_expects_no_pass_and_reports_why() -> None:
    entries = read_ledger(LEDGER).entries
    assert len({entry.name for entry in entries}) == len(entries) == LEDGER.read_text().count("\n    reason:")
    for entry in entries:
        assert set(entry.outcomes) <= {"wrong", "fault", "timeout"}, entry.name
        assert len(entry.reason.split()) > 3, entry.name
        assert entry.expires > datetime.date(2026, 1, 1), entry.name


def test_read_ledger_has_entries_as_written(ledger: Ledger) -> None:
    big_pools, over_read = ledger.entries
    assert (big_pools.name, big_pools.location, big_pools.outcomes) == (
        "big_pools",
        "ledger.yaml:3",
        ("wrong", "fault"),
    )
    assert over_read.problems == ("page-fault/*",)
    assert (over_read.link, over_read.expires) == ("", datetime.date(2026, 12, 31))


@pytest.mark.parametrize(
    ("problem", "upstream", "arch", "result", "kind", "good"),
    [
        ("large-kv/lines.full-m64", "aiter", "gfx942", "wrong", "known", True),
        ("large-kv/lines.full-m64", "ck-2025-11", "gfx942", "wrong", "failed", False),
        ("large-kv/scattered.g3-x", "aiter", "gfx942", "wrong", "failed", False),
        ("page-fault/a.b", "aiter", "gfx950", "fault", "known", True),
        ("page-fault/a.b", "aiter", "gfx942", "fault", "failed", False),
    ],
)
def test_judge_of_result_has_kind_and_good(
    ledger: Ledger, problem: str, upstream: str, arch: str, result: str, kind: str, good: bool
) -> None:
    verdict = ledger.judge(make_case(problem), upstream, arch, result)
    assert (verdict.kind, verdict.good) == (kind, good)


def globs_of_nothing(ledger: Ledger) -> list[str]:
    """The globs of a ledger that no problem of its suite has, or no kernel of an upstream."""
    kernels = {name for stored in (*stored_lists(), *stored_lists(OWN)) for name in stored_names(stored)}
    names = {problem.name for suite in SUITES for problem in problems(suite, "nightly")}
    names |= {case.name for case in performance_problems("nightly")} | {
        f"{FAMILY_SUITE}/{kernel}" for kernel in kernels
    }
    globs = [(entry, glob, names) for entry in ledger.entries for glob in entry.problems]
    globs += [(entry, glob, kernels) for entry in ledger.entries for glob in entry.kernels]
    return [
        f"{entry.location}: {entry.name}: {glob}" for entry, glob, names in globs if not fnmatch.filter(names, glob)
    ]


def test_every_glob_of_house_matches_problem_or_kernel() -> None:
    assert globs_of_nothing(read_ledger(LEDGER)) == []


def test_glob_that_matches_nothing_is_listed(tmp_path: Path) -> None:
    file = tmp_path / "ledger.yaml"
    kernel = "fmha_fwwd_nothing*"
    file.write_text(replace_text(TEXT, "problems: page-fault/*", f"problems: [page-fault/*, kernels/{kernel}]"))
    assert globs_of_nothing(read_ledger(file)) == [
        f"ledger.yaml:11: over_read: kernels/{kernel}",
        f"ledger.yaml:11: over_read: {kernel}",
    ]


def test_dialect_entry_excuses_checkouts_and_allows_pass() -> None:
    ledger, case = read_ledger(LEDGER), make_case("page-fault/stale_slots.ps16-linear")
    assert (source("checkout", "rocm-libraries-2026"), source("aiter", "ck-2025-11")) == (
        "rocm-libraries-2026",
        "aiter",
    )
    assert ledger.judge(case, "ck-2025-11", "gfx950", "wrong").kind == "failed"
    for name in ("rocm-libraries-2026", "rocm-libraries-2026+few_compute_units", "rocm-libraries-2026-09"):
        assert ledger.judge(case, name, "gfx950", "wrong").kind == "known"
        assert ledger.judge(case, name, "gfx950", "fault").kind == "failed"
        passed = ledger.judge(case, name, "gfx950", "passed")
        assert (passed.kind, passed.entry) == ("passed", None)
        assert passed.text.startswith("passed: this checkout is without unused-slots-of-last-pages-enter-as-")


def test_verdict_text_names_line_of_entry(ledger: Ledger) -> None:
    verdict = ledger.judge(make_case("page-fault/a"), "aiter", "gfx950", "fault")
    assert verdict.text == "fault: the table is read past its end (over_read, ledger.yaml:11)"
    surprise = ledger.judge(make_case("page-fault/a"), "aiter", "gfx950", "passed")
    expected = "passes, but ledger.yaml:11 expects fault: narrow or remove over_read, unless it passes on a GPU alone"
    assert surprise.text == expected
    with pytest.raises(ValueError, match="no result 'fine'"):
        ledger.judge(make_case("page-fault/a"), "aiter", "gfx950", "fine")


def test_expired_entry_fails_day_after(ledger: Ledger) -> None:
    ledger.check_dates(datetime.date(2026, 12, 31))
    with pytest.raises(CheckFailedError) as caught:
        ledger.check_dates(datetime.date(2027, 1, 1))
    assert str(caught.value).startswith("ledger.yaml:11: over_read expired on 2026-12-31: the table is read")
    assert "big_pools" not in str(caught.value)
    assert caught.value.exit_code == 8


def test_entry_covers_problems_that_meet_its_condition(tmp_path: Path) -> None:
    file = tmp_path / "ledger.yaml"
    condition = "where: problem.keys_ahead > 0 and problem.mask != 'no'"
    file.write_text(TEXT.replace("archs: gfx950", f"archs: gfx950\n    {condition}"))
    book = read_ledger(file)

    def kind(**fields: Any) -> str:
        return book.judge(make_case("page-fault/a", **fields), "aiter", "gfx950", "passed").kind

    assert kind(mask="window", seqlens_q=(9, 9), seqlens_k=(9, 10)) == "unexpected_pass"
    assert kind(mask="window", seqlens_q=(9, 9), seqlens_k=(9, 8)) == "passed"
    assert kind(mask="no", seqlens_q=(9, 9), seqlens_k=(9, 10)) == "passed"


def test_entry_of_unwaited_loads_speaks_of_cases_that_had_one(tmp_path: Path) -> None:
    file = tmp_path / "ledger.yaml"
    file.write_text(TEXT.replace("archs: gfx950", "archs: gfx950\n    unwaited_loads: true"))
    book = read_ledger(file)
    case = make_case("page-fault/a")
    assert book.judge(case, "aiter", "gfx950", "fault", unwaited=True).kind == "known"
    assert book.judge(case, "aiter", "gfx950", "fault").kind == "failed"
    assert book.judge(case, "aiter", "gfx950", "passed", unwaited=True).kind == "unexpected_pass"
    assert book.judge(case, "aiter", "gfx950", "passed").kind == "passed"


def _alibi_from_the_top_left_shows(problem: SuiteCase) -> bool:
    """Return True if ALiBi's distances from the top left, not the bottom right, change O or a stored LSE."""
    for queries, keys in zip(problem.seqlens_q, problem.seqlens_k, strict=True):
        row, column = np.ogrid[:queries, :keys]
        y, x = mask_corner(problem, queries, keys)
        scores = np.where((column > row - y) & (column < row + x), np.sin(row * 7.0 + column * 3.0), -np.inf)
        seen = np.isfinite(scores).any(axis=1)
        left, right = (scores[seen] - 0.25 * np.abs(row + shift - column)[seen] for shift in (0, keys - queries))
        sums = [np.exp(logits).sum(axis=1, keepdims=True) for logits in (left, right)]
        if not np.allclose(np.exp(left) / sums[0], np.exp(right) / sums[1], rtol=1e-9, atol=1e-12):
            return True
        if problem.lse and not np.allclose(*sums):
            return True
    return False


def test_alibi_of_general_window_is_wrong_where_it_shows() -> None:
    (entry,) = (entry for entry in read_ledger(LEDGER).entries if entry.name == "alibi-of-a-general-window")
    anywhere = dataclasses.replace(entry, holds=lambda problem: True)
    reached = [
        problem
        for suite in ("batch-prefill", "sanitize")
        for problem in problems(suite, "full")
        if anywhere.covers(problem, "aiter", "gfx950") and problem.dtype == "bf16"
    ]
    verdicts = {entry.covers(problem, "aiter", "gfx950") for problem in reached}
    assert verdicts == {True, False}
    for problem in reached:
        assert entry.covers(problem, "aiter", "gfx950") == _alibi_from_the_top_left_shows(problem), problem.name


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("outcome: fault", "outcome: broken", "15: entries.over_read.outcome: unknown 'broken'; known: wrong, fault"),
        ("archs: gfx950", "archs: gfx9", "14: entries.over_read.archs: unknown 'gfx9'"),
        ("upstreams: aiter", "upstreams: ck", "unknown 'ck'"),
        ("expires: 2026-12-31", "expires: soon", "17: entries.over_read.expires: must be a date such as 2027-06-30"),
        ("page-fault/*", "pagefault/*", "'pagefault/*' has no suite"),
        ("reason: the table is read past its end", "reason: ' '", "is empty: describe the defect"),
        ("archs: gfx950", "archs: gfx950\n    where: problem.keys", "unknown field 'problem.keys'"),
        ("archs: gfx950", "archs: gfx950\n    unwaited_loads: 1", "must be true or false, not 1"),
        ("archs: gfx950", "archs: gfx950\n    where: lse", "unknown 'lse'; did you mean 'problem.lse'?"),
        (
            "archs: gfx950",
            "archs: gfx950\n    where: problem.window_left == 'x'",
            "entries.over_read.where: \"problem.window_left == 'x'\": problem.window_left is a number, 'x' is text; ",
        ),
        (
            "archs: gfx950",
            "archs: gfx950\n    where: problem.mask == 'windw'",
            "problem.mask is never 'windw'; did you mean 'window'? Its words: no, top_left, bottom_right, window",
        ),
        (
            "archs: gfx950",
            "archs: gfx950\n    kernels: fmha_*\n    calls: problem.pool_bytes > '9'",
            "16: entries.over_read.calls: \"problem.pool_bytes > '9'\": problem.pool_bytes is a number, '9' is text; ",
        ),
        ("  over_read:", "  big_pools:", "written twice"),
    ],
)
def test_read_ledger_with_mistake_names_it(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert message in table_complaint(tmp_path / "ledger.yaml", replace_text(TEXT, old, new), read_ledger)


@pytest.mark.parametrize("suite", ["batch-prefill", "large-kv"])
def test_calls_meet_defects_that_suites_show(suite: str) -> None:
    """Cases of one sequence are refused if the suites saw them fail: a call has the lengths of one sequence."""
    keys = enumerate_keys(dialect(upstreams()["aiter"].dialect).family("batch_prefill"), arch="gfx950")
    entries = [entry for entry in read_ledger(LEDGER).entries if entry.kernels and not entry.keep]
    compared = 0
    for case in problems(suite):
        names = [key.name for key in serving_kernels(keys, case)] if case.batch == 1 and case.expect == "ok" else []
        refused = {entry.name for entry in entries for name in names if entry.spoils(case, name, "aiter")}
        shown = {entry.name for entry in entries if names and entry.covers(case, "aiter", "gfx950")}
        assert refused == shown, case.name
        compared += bool(shown)
    assert compared > 10


@pytest.mark.parametrize(("upstream", "source_name"), [("aiter", "aiter"), ("ckpm", "rocm-libraries-2026")])
def test_calls_are_told_of_data_that_suites_show(upstream: str, source_name: str) -> None:
    keys = enumerate_keys(dialect(upstreams()[upstream].dialect).family("batch_prefill"), arch="gfx950")
    ledger = read_ledger(LEDGER)
    entry_names: set[str] = set()
    for case in (case for suite in ("batch-prefill", "page-fault", "sanitize") for case in problems(suite, "full")):
        shown = {
            entry.name
            for entry in ledger.entries
            if entry.keep and entry.covers(case, source_name, "gfx950", unwaited=True)
        }
        for key in serving_kernels(keys, case) if shown and case.expect == "ok" else ():
            kept_names = {entry.name for entry in ledger.find_to_keep(case, key.name, source_name)}
            assert kept_names >= shown, (case.name, key.name)
            entry_names |= shown
    wanted = {
        entry.name
        for entry in ledger.entries
        if entry.keep and source_name in entry.upstreams and "gfx942" not in entry.archs
        if not all(glob.startswith(FAMILY_SUITE) for glob in entry.problems)
    }
    assert entry_names == wanted


def test_call_of_gradients_in_group_mode_is_told_to_clear_them() -> None:
    kernel, group = "fmha_bwd_d64_bf16_group_x", Problem(family="bwd_dq_dk_dv", mode="group", total_q=9, total_k=9)
    (entry,) = read_ledger(LEDGER).find_to_keep(group, kernel, "aiter")
    assert entry.name == "sequences-without-queries-are-left-out"
    assert not read_ledger(LEDGER).find_to_keep(dataclasses.replace(group, mode="batch"), kernel, "aiter")
    case = SuiteCase(
        name="kernels/fmha_bwd_d64_bf16_group_x",
        suite="kernels",
        tier="full",
        group="",
        seqlens_q=(0, 5),
        seqlens_k=(3, 5),
    )
    assert entry.covers(case, "aiter", "gfx950")
    assert not entry.covers(dataclasses.replace(case, seqlens_q=(1, 5)), "aiter", "gfx950")


def test_keep_does_not_refuse_a_call() -> None:
    ledger, kernel = read_ledger(LEDGER), "fmha_batch_prefill_d128_bf16_group_b64x128x64x128x64x128_x"
    assert ledger.find_for_call(Problem(hdim_q=64, hdim_v=64), kernel, "aiter") is None
    assert ledger.find_to_keep(Problem(hdim_q=64, hdim_v=64), kernel, "aiter")


def test_kernels_of_their_suite_are_refused_to_calls() -> None:
    (entry,) = (entry for entry in read_ledger(LEDGER).entries if entry.name == "v-overwrites-the-last-slice-of-k")
    kernel = "fmha_fwd_d96_bf16_batch_b128x128x32x96x32x96_r4x1x1_r4x1x1_w32x32x16_w32x32x16_qr_async_vr_psddv"
    assert entry.spoils(Problem(hdim_q=96, hdim_v=96), kernel, "aiter")
    assert not entry.spoils(Problem(hdim_q=96, hdim_v=96), kernel, "flash-attn")
    assert not entry.spoils(Problem(), kernel.replace("qr_async", "qr"), "aiter")

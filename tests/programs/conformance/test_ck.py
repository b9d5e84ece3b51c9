"""CK's own programs on the emulated device, with their own comparison with the host's result."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import pytest

from conformance.stored import read
from tests.programs.conformance.ck_examples import runs, verdict
from tests.programs.conformance.smoke_script import Features, features, runnable, script_lines
from tests.programs.conformance.tables import OUTCOMES
from tests.programs.example_program import configurations
from tests.programs.example_program import verdict as attention_verdict


@pytest.mark.parametrize("name", runs())
def test_example_accepts_its_result(name: str) -> None:
    result = verdict(runs()[name])
    assert result.valid, result.output


def test_verdict_of_run_without_comparison_is_not_valid() -> None:
    """The program has no kernel for fp32. It prints nothing and ends with 0."""
    (sample_run, *_) = (run for run in runs().values() if run.program == "topk_softmax")
    result = verdict(dataclasses.replace(sample_run, arguments="-pr_i=fp32 -warmup=0 -repeat=1"))
    assert result.exit_code == 0
    assert not result.valid


@pytest.mark.parametrize(
    ("suite", "names"), [("ck-examples", runs), ("ck-attention", configurations), ("ck-smoke-script", runnable)]
)
def test_stored_outcomes_are_all_passed(suite: str, names: Callable[[], Mapping[str, object]]) -> None:
    stored = read(OUTCOMES / f"{suite}.yaml").archs["gfx950"]
    assert stored.tests == len(names())
    assert stored.outcomes() == {}


@pytest.mark.parametrize("arguments", runnable())
def test_run_of_smoke_script_is_valid(arguments: str) -> None:
    result = attention_verdict(runnable()[arguments])
    assert result.valid, result.output


def test_script_lines_are_complete() -> None:
    """The two loops of the script make 2 * 2 * 2 * 4 * 2 * 3 * 2 times 9 runs."""
    assert len(script_lines()) >= 3456
    assert set(runnable()) <= set(script_lines())


def test_features_depend_on_arguments() -> None:
    plain = features("-prec=bf16 -d=16 -d_v=64")
    assert plain == Features("bf16", group=False, head_dim=64, mask=False, lse=False, bias="n", dropout=False)
    others = ["-mode=1", "-mask=2", "-mask=b:4,35", "-lse=1", "-bias=e", "-p_drop=0.2", "-prec=fp16", "-d_v=128"]
    for other in others:
        assert features(f"-prec=bf16 -d=16 -d_v=64 {other}") != plain
    assert features("-prec=bf16 -d=16 -d_v=64 -s=99 -iperm=0 -lse=0 -p_drop=0.0 -mask=0") == plain

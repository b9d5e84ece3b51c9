"""CK's own programs on the emulated device, each judged by its own comparison with the host's result."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import pytest

from tests.programs.conformance.ck_examples import runs, verdict
from tests.programs.conformance.smoke_script import Features, features, recorded, served
from tests.programs.conformance.stored import OUTCOMES, read
from tests.programs.example_program import verdict as attention_verdict


@pytest.mark.parametrize("name", runs())
def test_an_example_takes_its_result_for_right(name: str) -> None:
    said = verdict(runs()[name])
    assert said.valid, said.output


def test_a_program_that_compares_nothing_is_not_valid() -> None:
    """It has no kernel for fp32, says nothing and ends with 0."""
    (known, *_) = (run for run in runs().values() if run.program == "topk_softmax")
    said = verdict(dataclasses.replace(known, arguments="-pr_i=fp32 -warmup=0 -repeat=1"))
    assert said.exit_code == 0
    assert not said.valid


@pytest.mark.parametrize(("suite", "names"), [("ck-examples", runs), ("ck-smoke-script", served)])
def test_stored_are_those_that_run(suite: str, names: Callable[[], Mapping[str, object]]) -> None:
    """All pass, so that there are no others to name."""
    stored = read(OUTCOMES / f"{suite}.yaml").archs["gfx950"]
    assert stored.tests == len(names())
    assert stored.outcomes() == {}


@pytest.mark.parametrize("arguments", served())
def test_a_run_of_the_smoke_script(arguments: str) -> None:
    said = attention_verdict(served()[arguments])
    assert said.valid, said.output


def test_the_script_was_read_whole() -> None:
    """Its two loops alone make 2 * 2 * 2 * 4 * 2 * 3 * 2 times 9 runs; none of ours is one that it doesn't make."""
    assert len(recorded()) >= 3456
    assert set(served()) <= set(recorded())


def test_features_decide() -> None:
    plain = features("-prec=bf16 -d=16 -d_v=64")
    assert plain == Features("bf16", group=False, head_dim=64, mask=False, lse=False, bias="n", dropout=False)
    others = ["-mode=1", "-mask=2", "-mask=b:4,35", "-lse=1", "-bias=e", "-p_drop=0.2", "-prec=fp16", "-d_v=128"]
    for other in others:
        assert features(f"-prec=bf16 -d=16 -d_v=64 {other}") != plain
    assert features("-prec=bf16 -d=16 -d_v=64 -s=99 -iperm=0 -lse=0 -p_drop=0.0 -mask=0") == plain

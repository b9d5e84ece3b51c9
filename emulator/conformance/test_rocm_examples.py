"""ROCm's examples: the verdict of a run, and the message if there is no hipcc."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from ckpm_emulator.errors import UsageError
from conformance.rocm_examples import Example, examples, outcome, verdict
from conformance.stored import OUTCOMES, PASSED, WRONG, read

EXAMPLE = Example(source="HIP-Basic/saxpy/main.hip", flags=(), prints="Validation passed", module="")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Validation passed.\n", PASSED), ("Validation failed.\n", WRONG), ("emulator: x\nValidation passed.\n", WRONG)],
)
def test_verdict_depends_on_printed_text(text: str, expected: str) -> None:
    assert verdict(EXAMPLE, text)[0] == expected


def test_examples_are_named_by_folder() -> None:
    names = [example.name for example in examples("gfx950")]
    assert "HIP-Basic/saxpy" in names
    assert "Tutorials/reduction/example/v1" in names
    assert len(names) == len(set(names))
    # rocBLAS has no code for gfx950
    assert not [example.name for example in examples("gfx950") if "rocBLAS" in example.name]


def test_stored_numbers_are_of_the_listed_examples() -> None:
    for arch, ran in read(OUTCOMES / "rocm-examples.yaml").archs.items():
        assert ran.tests == len(examples(arch))
        assert ran.checked is None or ran.checked.tests == len(examples(arch, "all"))


def test_outcome_without_hipcc_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="name a root with hipcc"):
        outcome(EXAMPLE, Namespace(arch="gfx950"), Path("/"), tmp_path)

"""CK's example program, unmodified, takes every kernel's result on the emulated device for right."""

from __future__ import annotations

import re

import pytest

from tests.programs.example_program import configurations, verdict


@pytest.mark.parametrize("name", configurations())
def test_its_own_verification_passes(name: str) -> None:
    said = verdict(configurations()[name])
    assert said.valid, said.output


def test_its_verification_sees_a_wrong_result() -> None:
    """fp16 inputs of up to 30,000 overflow what the kernel keeps of a sum: the program must say so and fail."""
    said = verdict(configurations()["d64"], "-init=ui", "-scale_s=3e4")
    assert not said.valid
    assert re.search(r"valid:n", said.output)


def test_what_no_kernel_serves_is_refused() -> None:
    said = verdict(configurations()["d64"], "-prec=bf16")
    assert said.exit_code != 0
    assert "not supported yet" in said.output


def test_enough_configurations() -> None:
    assert len(configurations()) >= 14
    assert len({one.arguments for one in configurations().values()}) == len(configurations())

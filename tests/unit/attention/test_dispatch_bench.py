"""Figures of ``ckpm bench`` about calls: they are measured without a device, and PyTorch's where it is installed."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from ckpm.bench import dispatch


def test_calls_of_the_dispatcher_are_measured_without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_CALLS", 2)
    monkeypatch.setattr(dispatch, "_ROUNDS", 1)
    figures = [*dispatch.measure_call(), *dispatch.measure_operator()]
    assert [figure.measured.split()[1] for figure in figures] == ["us"] * (3 if find_spec("torch") else 2)

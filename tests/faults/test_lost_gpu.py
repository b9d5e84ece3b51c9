"""A GPU that disappears during a case: at every call, the outcome is an infrastructure error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from ckpm.attention.launch.device import Fault
from ckpm.attention.launch.hip_api import NO_DEVICE, HipApi
from ckpm.base.errors import HipError
from ckpm.suites.checks import run_case
from tests.unit.attention.test_launching import TWO, FakeDevice, FakeHip, bench

CALLS = ("malloc", "free", "write", "read", "fill", "synchronize")


class LeavingHip(FakeHip):
    """All calls after the first ``left`` fail, as on a device that has fallen off its bus."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left
        for name in CALLS:
            setattr(self, name, self._while_there(getattr(super(), name)))

    def _while_there(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def call_if_there(*arguments: Any) -> Any:
            self.left -= 1
            if self.is_gone:
                raise HipError("hipErrorNoDevice: no ROCm-capable device is detected", NO_DEVICE)
            return call(*arguments)

        return call_if_there

    @property
    def is_gone(self) -> bool:
        return self.left < 0


def outcome_when_gone_after(calls: int, monkeypatch: pytest.MonkeyPatch) -> str:
    served, device, _ = bench(monkeypatch)
    hip = LeavingHip(calls)
    device.hip = cast(HipApi, hip)

    def fault(_: FakeDevice) -> Fault | None:
        return Fault(kind="hip", message="hipErrorNoDevice", error=NO_DEVICE) if hip.is_gone else None

    with monkeypatch.context() as patch:
        patch.setattr(FakeDevice, "fault", fault)
        return run_case(served, TWO).outcome


def test_run_case_with_lost_gpu_is_infrastructure(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes: list[str] = []
    while not outcomes or outcomes[-1] != "passed":
        assert len(outcomes) < 200
        outcomes.append(outcome_when_gone_after(len(outcomes), monkeypatch))
    assert len(outcomes) > len(CALLS)
    assert set(outcomes[:-1]) == {"infrastructure"}

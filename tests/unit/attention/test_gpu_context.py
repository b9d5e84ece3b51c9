"""Values read from AMD SMI, on a stand-in for its package: this machine needs neither it nor a GPU."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ckpm.attention.launch import gpu_context

BUS = "0000:C1:00.0"


class SmiError(Exception):
    """amdsmi's AmdSmiException."""


class Smi(ModuleType):
    """One card, as ROCm 7's amdsmi reports it. ``refuses`` holds calls that raise."""

    AmdSmiException = SmiError
    AmdSmiTemperatureType = SimpleNamespace(HOTSPOT="hotspot")
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT="current")
    AmdSmiClkType = SimpleNamespace(GFX="gfx")

    def __init__(self, refuses: tuple[str, ...] = (), **change: Any) -> None:
        super().__init__("amdsmi")
        self.open = 0
        self._refuses = refuses
        self._told: dict[str, Any] = {
            "amdsmi_get_processor_handles": ["other", "card"],
            "amdsmi_get_temp_metric": 61,
            "amdsmi_get_clock_info": {"clk": 2093, "min_clk": 500, "max_clk": 2400},
            "amdsmi_get_power_info": {"current_socket_power": 712, "average_socket_power": "N/A"},
            **change,
        }

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            if name in self._refuses:
                raise SmiError(f"{name}: not supported")
            self.open += {"amdsmi_init": 1, "amdsmi_shut_down": -1}.get(name, 0)
            if name == "amdsmi_get_gpu_device_bdf":
                return {"card": "0000:c1:00.0", "other": "0000:05:00.0"}[arguments[0]]
            assert arguments[:1] in ((), ("card",))
            return self._told.get(name)

        if not name.startswith("amdsmi_"):
            raise AttributeError(name)
        return call


CASES: dict[str, tuple[Smi, dict[str, str]]] = {
    "of ROCm 7": (Smi(), {"smi_temperature_c": "61", "smi_clock_mhz": "2093", "smi_power_w": "712"}),
    "of ROCm 5": (
        Smi(amdsmi_get_clock_info={"cur_clk": 1700}, amdsmi_get_power_info={"average_socket_power": 300}),
        {"smi_temperature_c": "61", "smi_clock_mhz": "1700", "smi_power_w": "300"},
    ),
    "a sensor that isn't there": (
        Smi(refuses=("amdsmi_get_temp_metric",), amdsmi_get_power_info={"current_socket_power": "N/A"}),
        {"smi_clock_mhz": "2093"},
    ),
    "another card": (
        Smi(amdsmi_get_processor_handles=["other"]),
        {"smi": "amdsmi does not list the card 0000:C1:00.0"},
    ),
    "no driver": (Smi(refuses=("amdsmi_init",)), {"smi": "amdsmi can't be started: amdsmi_init: not supported"}),
    "no cards told": (
        Smi(refuses=("amdsmi_get_processor_handles",)),
        {"smi": "amdsmi reports nothing: amdsmi_get_processor_handles: not supported"},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_figures_of_amdsmi_are_recorded(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    smi, recorded = CASES[case]
    monkeypatch.setitem(sys.modules, "amdsmi", smi)
    assert gpu_context.smi_sensors(BUS) == recorded
    assert smi.open == 0  # whoever was started was shut down


def test_without_amdsmi_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    assert gpu_context.smi_sensors(BUS) == {}


def test_amdsmi_without_its_library_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "amdsmi.py").write_text("raise OSError('libamd_smi.so: no such file')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    assert gpu_context.smi_sensors(BUS) == {"smi": "amdsmi can't be imported: libamd_smi.so: no such file"}


def test_amdsmi_hidden_by_environment_comes_from_rocm_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several lines of its message, as the real package has without a driver, become one."""
    package = tmp_path / "share" / "amd_smi" / "amdsmi"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "class AmdSmiException(Exception): pass\n"
        "def amdsmi_init(): raise AmdSmiException('Error code:\\n\\t34 | AMDSMI_STATUS_DRIVER_NOT_LOADED')\n"
    )
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    before = list(sys.path)
    sensors = {"smi": "amdsmi can't be started: Error code: 34 | AMDSMI_STATUS_DRIVER_NOT_LOADED"}
    assert gpu_context.smi_sensors(BUS) == sensors
    assert sys.path == before
    monkeypatch.delitem(sys.modules, "amdsmi")


def test_rocms_own_amdsmi_comes_before_distributions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCM_PATH", "/rocm")
    assert [str(folder) for folder in gpu_context.package_folders()] == [
        "/rocm/share/amd_smi",
        "/usr/lib/python3/dist-packages",
    ]

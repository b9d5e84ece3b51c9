"""The circumstances of a measurement: GPU, versions, clock policy, clock, temperature and power.

Linux' amdgpu driver has files for them (the kernel's documentation of drm/amdgpu, "GPU Power/Thermal Controls and
Monitoring"). A setting that can't be read is ''. Comparisons must not treat two of these as equal.

AMD SMI reports more if its Python package ``amdsmi`` is installed (with ROCm): the clock and power of all compute dies,
also on cards without the driver's files. Calls and units follow its documentation (AMD SMI Python API): degrees
Celsius, MHz, watts. Missing figures are left out.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from ckpm.base import rocm_places

_MODULE = "amdsmi"
_CARDS = rocm_places.SYSTEM / "sys/class/drm"
_DRIVER = rocm_places.SYSTEM / "sys/module/amdgpu/version"
_LIMITS = ("power1_cap",)  # of hwmon: microwatts
_SENSORS = {"temperature": "temp2_input", "clock": "freq1_input", "power": "power1_average"}  # m°C (junction), Hz, uW


def smi_sensors(bus: str) -> Mapping[str, str]:
    """Current figures of the card at a PCI bus id (0000:c1:00.0), by ``smi_NAME_UNIT``; empty without amdsmi.

    If amdsmi is installed but reports nothing, ``smi`` contains the reason.
    """
    try:
        smi = _import()
    except ModuleNotFoundError:
        return {}
    except (
        ImportError,
        OSError,
        AttributeError,
        KeyError,
    ) as error:  # its shared library is missing, or of another version
        return {"smi": f"amdsmi can't be imported: {_line(error)}"}
    try:
        smi.amdsmi_init()
    except smi.AmdSmiException as error:
        return {"smi": f"amdsmi can't be started: {_line(error)}"}
    try:
        return _read_card(smi, bus)
    except (smi.AmdSmiException, AttributeError) as error:  # the latter: a name of another version
        return {"smi": f"amdsmi reports nothing: {_line(error)}"}
    finally:
        with contextlib.suppress(smi.AmdSmiException):  # the figures are there
            smi.amdsmi_shut_down()


def _import() -> ModuleType:
    """Import amdsmi, also from folders of the system's Python, which a virtual environment hides."""
    try:
        return importlib.import_module(_MODULE)
    except ModuleNotFoundError:
        folder = next((folder for folder in package_folders() if (folder / _MODULE / "__init__.py").is_file()), None)
        if folder is None:
            raise
    before = list(sys.path)
    sys.path.append(str(folder))  # last: nothing of the system's packages replaces one of ours
    try:
        return importlib.import_module(_MODULE)
    finally:
        sys.path[:] = before


def package_folders() -> tuple[Path, ...]:
    """Folders that may contain the package: ROCm's own, Debian's."""
    rocm = Path(os.environ.get("ROCM_PATH") or "/opt/rocm")
    return (rocm / "share" / "amd_smi", Path("/usr/lib/python3/dist-packages"))


def _line(error: Exception) -> str:
    """An error's message on one line: amdsmi's messages have several."""
    return " ".join(str(error).split())


def _read_card(smi: ModuleType, bus: str) -> dict[str, str]:
    cards = {smi.amdsmi_get_gpu_device_bdf(card).lower(): card for card in smi.amdsmi_get_processor_handles()}
    card = cards.get(bus.lower())
    if card is None:
        return {"smi": f"amdsmi does not list the card {bus}"}
    ways: dict[str, Callable[[], Any]] = {
        "smi_temperature_c": lambda: smi.amdsmi_get_temp_metric(
            card, smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT
        ),
        # ROCm 5 has the second name
        "smi_clock_mhz": lambda: _first(smi.amdsmi_get_clock_info(card, smi.AmdSmiClkType.GFX), "clk", "cur_clk"),
        # MI300 and later have the current power, earlier cards the average
        "smi_power_w": lambda: _first(smi.amdsmi_get_power_info(card), "current_socket_power", "average_socket_power"),
    }
    readings = {}
    for name, ask in ways.items():
        with contextlib.suppress(smi.AmdSmiException):  # this card has no such sensor
            value = ask()
            if isinstance(value, int | float):  # else 'N/A'
                readings[name] = str(value)
    return readings


def _first(figures: Mapping[str, Any], *names: str) -> Any:
    """The first of the named figures that is a number."""
    return next((figures[name] for name in names if isinstance(figures.get(name), int | float)), None)


def settings(bus: str, cards: Path = _CARDS, driver: Path = _DRIVER) -> Mapping[str, str]:
    """Settings of the card at a PCI bus id (0000:c1:00.0) that stay until somebody changes them."""
    card = _card(bus, cards)
    level = _text(card / "power_dpm_force_performance_level") if card else ""
    limits = [_text(file) for name in _LIMITS for file in _monitors(card, name)]
    return {
        "driver": _text(driver) or _text(Path("/proc/sys/kernel/osrelease")),
        "clock_policy": " ".join((level, *limits)) if level else "",
        "compute_partition": _text(card / "current_compute_partition") if card else "",
        "memory_partition": _text(card / "current_memory_partition") if card else "",
    }


def sensors(bus: str, cards: Path = _CARDS) -> Mapping[str, str]:
    """Current temperature, clock and power, as far as they can be read."""
    card = _card(bus, cards)
    texts = {name: _text(file) for name, sensor in _SENSORS.items() for file in _monitors(card, sensor)[:1]}
    return {name: text for name, text in texts.items() if text}


def _card(bus: str, cards: Path) -> Path | None:
    folders = (card / "device" for card in sorted(cards.glob("card*")))
    return next((card for card in folders if bus and card.resolve().name.lower() == bus.lower()), None)


def _monitors(card: Path | None, name: str) -> list[Path]:
    return sorted(card.glob(f"hwmon/*/{name}")) if card else []


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""

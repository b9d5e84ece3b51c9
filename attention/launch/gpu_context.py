"""The circumstances of a measurement: GPU, versions, clock policy, as Linux' amdgpu driver reports them.

Files: the kernel's documentation of drm/amdgpu ("GPU Power/Thermal Controls and Monitoring"). What can't be read is '',
which a comparison must not take for equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_CARDS = Path("/sys/class/drm")
_DRIVER = Path("/sys/module/amdgpu/version")
_LIMITS = ("power1_cap",)  # of hwmon: microwatts
_SENSORS = {"temperature": "temp2_input", "clock": "freq1_input", "power": "power1_average"}  # m°C (junction), Hz, uW


def settings(bus: str, cards: Path = _CARDS, driver: Path = _DRIVER) -> Mapping[str, str]:
    """Settings that only change if somebody changes them, of the card at a PCI bus id (0000:c1:00.0)."""
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
    """Temperature, clock and power of this moment; only those that can be read."""
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

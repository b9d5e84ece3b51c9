"""An error of the emulator becomes ckpm's class of the same name, with its kind and HIP's error number."""

from __future__ import annotations

import inspect

import pytest

from ckpm.base import errors as ckpm_errors
from ckpm.kernels.code.emulated import translated_errors
from ckpm_emulator import errors as emulator_errors
from ckpm_emulator.errors import EmulatorError

CLASSES: dict[str, type[EmulatorError]] = {
    name: kind
    for name, kind in inspect.getmembers(emulator_errors, inspect.isclass)
    if issubclass(kind, EmulatorError) and kind is not EmulatorError
}


class FaultOfThisTestError(emulator_errors.DeviceError):
    """A class that ckpm lacks, as the emulator's DeviceFaultError."""


@pytest.mark.parametrize("name", CLASSES)
def test_each_class_has_namesake_with_same_exit_code(name: str) -> None:
    with pytest.raises(ckpm_errors.CkPrefillError) as caught, translated_errors():
        raise CLASSES[name]("a message", kind="of-a-kind")
    assert type(caught.value) is getattr(ckpm_errors, name)
    assert (str(caught.value), caught.value.kind) == ("a message", "of-a-kind")
    assert caught.value.exit_code == CLASSES[name].exit_code


def test_message_begins_with_task_and_number_is_kept() -> None:
    with pytest.raises(ckpm_errors.DeviceError) as caught, translated_errors("KERNEL can't be run"):
        raise FaultOfThisTestError("a page fault", 700)
    assert type(caught.value) is ckpm_errors.DeviceError
    assert (str(caught.value), caught.value.error) == ("KERNEL can't be run: a page fault", 700)


def test_other_errors_pass() -> None:
    with pytest.raises(ckpm_errors.HipError) as caught, translated_errors("a task"):
        raise ckpm_errors.HipError("a message")
    assert str(caught.value) == "a message"

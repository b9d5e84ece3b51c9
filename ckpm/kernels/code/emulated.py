"""The emulator's HIP headers, and its errors, which are translated to ckpm's classes of the same names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ckpm_emulator
from ckpm.base import errors
from ckpm_emulator.errors import DeviceError, EmulatorError

HIP_HEADERS = Path(ckpm_emulator.__file__).with_name("include")


@contextmanager
def translated_errors(task: str = "") -> Iterator[None]:
    """Raise the class of the same name for an error of the emulator, with its kind and HIP error number.

    A class that only the emulator has becomes its base class. ``task`` begins the message: "KERNEL can't be run".
    """
    try:
        yield
    except EmulatorError as error:
        name = next(base.__name__ for base in type(error).__mro__ if hasattr(errors, base.__name__))
        number = {"error": error.error} if isinstance(error, DeviceError) else {}
        message = f"{task}: {error}" if task else str(error)
        raise getattr(errors, name)(message, kind=error.kind, **number) from error

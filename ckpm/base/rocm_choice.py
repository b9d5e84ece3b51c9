"""The choice of compiler and device: the pinned compiler and the emulator, or with ``--rocm`` ROCm's and the GPU.

``CKPM_ROCM=1`` in the environment is ``--rocm`` for every command and for the Python API. ``--toolchain`` and
``--device`` choose one of the two, and win over the environment.
"""

from __future__ import annotations

import argparse
import os

from .errors import UsageError, unknown_word

VARIABLE = "CKPM_ROCM"
TOOLCHAINS = ("embedded", "rocm")
DEVICES = ("emulator", "hip")
_CHOICES = {"toolchain": TOOLCHAINS, "device": DEVICES}
_OF_ROCM = {"toolchain": "ROCm's compiler", "device": "the machine's GPU"}


def rocm_wanted() -> bool:
    """Return True if the environment asks for ROCm and the GPU. Raises UsageError: CKPM_ROCM is neither 0 nor 1."""
    value = os.environ.get(VARIABLE, "")
    if value not in ("", "0", "1"):
        raise UsageError(f"{VARIABLE} is '{value}': set it to 1 for ROCm and the GPU, or to 0.")
    return value == "1"


def default_toolchain() -> str:
    """The toolchain of builds that name none: ``embedded``, or ``rocm`` if CKPM_ROCM is 1."""
    return TOOLCHAINS[rocm_wanted()]


def default_device() -> str:
    """The device of calls that name none: ``emulator``, or ``hip`` if CKPM_ROCM is 1."""
    return DEVICES[rocm_wanted()]


def unknown(option: str, choice: str) -> UsageError:
    """The refusal of a toolchain or device that does not exist."""
    hint = f" {_no_auto(_CHOICES[option][0])}." if choice == "auto" else ""
    return UsageError(f"{unknown_word(option, choice, _CHOICES[option])}{hint}")


def _no_auto(default: str) -> str:
    return f"'auto' is gone: the default is {default}; --rocm (or {VARIABLE}=1) takes ROCm and the GPU"


def add_rocm_options(parser: argparse.ArgumentParser, *options: str) -> None:
    """Add ``--rocm``, and ``--toolchain`` and ``--device`` if named, whose values :func:`settle` completes."""
    taken = " and ".join(_OF_ROCM[option] for option in options)
    parser.add_argument("--rocm", action="store_true", help=f"take {taken} (default: if {VARIABLE} is 1)")
    for option in options:
        default, of_rocm = _CHOICES[option]

        def refuse_auto(choice: str, default: str = default) -> str:
            if choice == "auto":
                raise argparse.ArgumentTypeError(_no_auto(default))
            return choice

        help_text = f"(default: {default}, {of_rocm} with --rocm)"
        parser.add_argument(f"--{option}", type=refuse_auto, choices=(default, of_rocm), help=help_text)


def settle(parsed: argparse.Namespace) -> None:
    """Complete ``rocm``, ``toolchain`` and ``device`` of parsed options. Raises UsageError: they contradict."""
    if not hasattr(parsed, "rocm"):
        return
    with_rocm = parsed.rocm or rocm_wanted()
    for option, choices in _CHOICES.items():
        chosen = getattr(parsed, option, "")
        if parsed.rocm and chosen == choices[0]:
            raise UsageError(f"--rocm and --{option} {chosen} contradict each other: leave one of them out.")
        if chosen is None:
            setattr(parsed, option, choices[with_rocm])
    parsed.rocm = with_rocm

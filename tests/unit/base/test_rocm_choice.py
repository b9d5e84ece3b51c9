"""The pinned compiler and the emulator are the default. ``--rocm`` and CKPM_ROCM=1 take ROCm's compiler and the GPU."""

from __future__ import annotations

import pytest

from ckpm.base.errors import UsageError
from ckpm.base.rocm_choice import default_device, default_toolchain
from ckpm.commands import parse
from tests.unit.shared import Run

SWEEP = ["sweep", "run", "sweep.json"]  # has both options


@pytest.mark.parametrize(
    ("variable", "options", "chosen"),
    [
        ("", [], ("embedded", "emulator", False)),
        ("0", [], ("embedded", "emulator", False)),
        ("1", [], ("rocm", "hip", True)),
        ("", ["--rocm"], ("rocm", "hip", True)),
        ("0", ["--rocm"], ("rocm", "hip", True)),
        ("", ["--toolchain", "rocm"], ("rocm", "emulator", False)),
        ("", ["--rocm", "--device", "hip"], ("rocm", "hip", True)),
        ("1", ["--device", "emulator"], ("rocm", "emulator", True)),
        ("1", ["--toolchain", "embedded"], ("embedded", "hip", True)),
    ],
)
def test_compiler_and_device_of_options(
    monkeypatch: pytest.MonkeyPatch, variable: str, options: list[str], chosen: tuple[str, str, bool]
) -> None:
    monkeypatch.setenv("CKPM_ROCM", variable)
    parsed = parse([*SWEEP, *options])
    assert (parsed.toolchain, parsed.device, parsed.rocm) == chosen
    assert parse(["build", *options[:0]]).toolchain == default_toolchain()
    assert parse(["test", "--suite", "dispatch"]).device == default_device()


@pytest.mark.parametrize("option", [("--toolchain", "embedded"), ("--device", "emulator")])
def test_rocm_with_its_opposite_is_refused(option: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match=f"^--rocm and {' '.join(option)} contradict each other"):
        parse([*SWEEP, "--rocm", *option])


@pytest.mark.parametrize(("option", "default"), [("--toolchain", "embedded"), ("--device", "emulator")])
def test_auto_is_refused_with_its_successor(run: Run, option: str, default: str) -> None:
    code, _, message = run(*SWEEP, option, "auto")
    assert code == 2
    assert f"'auto' is gone: the default is {default}; --rocm (or CKPM_ROCM=1) takes ROCm" in message


def test_variable_has_two_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CKPM_ROCM", "yes")
    with pytest.raises(UsageError, match="CKPM_ROCM is 'yes': set it to 1 for ROCm and the GPU, or to 0"):
        default_device()

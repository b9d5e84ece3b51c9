"""Run the tests of compiled IREE modules on the HIP device: ``python iree_tests.py FOLDER OPTION...`` of googletest.

IREE's wheels lack ``iree-check-module``: this file has its module of checks. The Python is a user's, with these wheels.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import as_googletest
import iree.runtime as rt
import numpy as np

DEVICE = rt.get_device("hip")


class _Checks:
    """The functions of IREE's check module (runtime/src/iree/modules/check). A check that fails raises."""

    def __init__(self, interface: object) -> None:
        del interface

    def expect_true(self, value: int) -> None:
        assert value, "the value is not true"

    def expect_false(self, value: int) -> None:
        assert not value, "the value is not false"

    def expect_all_true(self, device: object, operand: Any) -> None:
        assert _array(operand).all(), f"{_array(operand)}: not all is true"

    def expect_eq(self, device: object, left: Any, right: Any) -> None:
        assert np.array_equal(_array(left), _array(right)), f"{_array(left)} is not {_array(right)}"

    def expect_almost_eq(self, device: object, left: Any, right: Any, absolute: float, relative: float) -> None:
        near = np.isclose(_array(left), _array(right), rtol=relative, atol=absolute, equal_nan=True)
        assert near.all(), f"{_array(left)} is not near {_array(right)}"


_FORMS = {"expect_true": "i", "expect_false": "i", "expect_all_true": "rr", "expect_eq": "rrr"}


def _array(reference: Any) -> Any:
    """The contents of a buffer view."""
    view = reference.deref(rt.HalBufferView)
    return rt.DeviceArray(DEVICE, view, implicit_host_transfer=True).to_host()


def main(folder: str, *requests: str) -> None:
    """List or run the functions that the modules of a folder export."""
    interface = rt.PyModuleInterface("check", _Checks)
    for name, form in {**_FORMS, "expect_almost_eq": "rrrff"}.items():
        interface.export(name, f"0{form}_v", getattr(_Checks, name))
    config, checks = rt.Config(device=DEVICE), interface.create()
    tests = dict[str, Callable[[], None]]()
    for file in sorted(Path(folder).glob("*.vmfb")):
        module = rt.VmModule.mmap(config.vm_instance, str(file))
        names = [name for name in module.function_names if not name.startswith("__")]
        tests |= {f"{file.stem}.{name}": functools.partial(_call, config, (checks, module), name) for name in names}
    as_googletest.run(tests, requests)


def _call(config: Any, modules: tuple[Any, Any], function: str) -> None:
    """Call a function of the last module in a context of its own."""
    context = rt.SystemContext(vm_modules=[*config.default_vm_modules, *modules], config=config)
    context.modules[modules[-1].name][function]()


if __name__ == "__main__":
    main(*sys.argv[1:])

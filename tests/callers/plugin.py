"""A plugin of pytest: draws a seeded sample of a caller's test file, and serves its calls on the emulated device."""

from __future__ import annotations

import math
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import ckpm
import tests
from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.jit.on_demand import on_demand
from ckpm.attention.kernel_sets import kernel_set
from ckpm.attention.launch.device import choose
from ckpm.attention.registry import Registry
from ckpm.kernels.library.request import LIBRARY
from tests.callers import aiter_modules, flashinfer_modules, gpu
from tests.callers.backends.loading import load_backends
from tests.callers.table import ARCH, Caller, callers

COUNTS = pytest.StashKey[dict[str, int]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("callers")
    group.addoption("--caller", help="row of callers.yaml")
    group.addoption("--libraries", type=Path, help="folder of built libraries")
    group.addoption("--cases", type=int, help="size of the sample")
    group.addoption("--seed", type=int, help="of the sample")


@pytest.hookimpl(tryfirst=True)  # a clone's conftest.py imports the stand-ins
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    torch.set_num_threads(1)
    early_config.stash[COUNTS] = {}
    row = callers()[early_config.known_args_namespace.caller]
    registry = Registry()
    for library in sorted(early_config.known_args_namespace.libraries.rglob(LIBRARY)):
        registry.add_library(library)
    for kernels in row.on_demand:
        registry.add(kernel_set(kernels.family, upstream=kernels.upstream, dtype=kernels.dtype))
    dispatcher = Dispatcher(registry, choose("emulator", ARCH), compile=on_demand() if row.on_demand else None)
    sys.modules.update(aiter_modules.modules() | flashinfer_modules.modules(dispatcher))
    if row.driven:
        with gpu.run_on_host():
            load_backends(row.clone, early_config.rootpath)
    ckpm.install(dispatcher)
    if row.driven:
        return
    # FlashInfer's tests import their helpers from a package that has the name of this one
    tests.__path__.insert(0, str(early_config.rootpath / "tests"))


def left_out(item: pytest.Item, row: Caller) -> str:
    """Return why a case is not drawn, and nothing of a case that may be drawn."""
    parameters: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    if any(str(parameters.get(name, values[0])) not in map(str, values) for name, values in row.only.items()):
        return f"only {', '.join(f'{name} {values}' for name, values in row.only.items())}"
    if any(parameters.items() >= skipped.items() for skipped in row.skipped):
        return "skips itself"
    if parameters.keys() >= {*row.work} and math.prod(parameters[name] for name in row.work) > row.most_work:
        return "too large"
    return row.without.get(getattr(item, "originalname", ""), "")


@pytest.hookimpl(trylast=True)  # after -k
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep a sample, in the file's order."""
    row = callers()[config.getoption("caller")]
    reasons = [left_out(item, row) for item in items]
    able = [item for item, reason in zip(items, reasons, strict=True) if not reason]
    sample = random.Random(config.getoption("seed")).sample(able, min(config.getoption("cases"), len(able)))
    kept = {id(item) for item in sample}
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
    config.stash[COUNTS] = {"collected": len(items), "drawn": len(kept), **Counter(filter(None, reasons))}
    items[:] = [item for item in items if id(item) in kept]


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["counts"] = session.config.stash[COUNTS]


@pytest.hookimpl(optionalhook=True)  # of xdist
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[COUNTS] = getattr(node, "workeroutput", {}).get("counts", {})


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for what, count in config.stash[COUNTS].items():
        terminalreporter.write_line(f"{count:6} {what}")


@pytest.fixture(autouse=True)
def _emulated_gpu() -> Iterator[None]:
    with gpu.run_on_host():
        yield

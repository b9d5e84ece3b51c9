"""Calls that a backend makes, what serves them, and its result against float64."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from typing import Any

from ckpm.attention.reference import agreement
from tests.callers.backends.cases import Case
from tests.callers.backends.numbers import Numbers

_PLACES = ("ckpm.attention.call", "ckpm.attention.callers.installing")


class _Calls(logging.Handler):
    """Names of aiter's functions that were served, with the kernels, from the log lines."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.served: list[tuple[str, str]] = []
        self._kernels = ""

    def emit(self, record: logging.LogRecord) -> None:
        assert isinstance(record.args, tuple)
        if record.name == _PLACES[0]:
            self._kernels = str(record.args[0])
        elif record.levelno == logging.DEBUG:
            self.served.append((str(record.args[0]), self._kernels))


@contextmanager
def served_calls() -> Iterator[list[tuple[str, str]]]:
    """A list that gets (aiter's function, kernels) of each call that is served meanwhile."""
    handler = _Calls()
    loggers = [logging.getLogger(name) for name in _PLACES]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
    try:
        yield handler.served
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)


def check(case: Case, numbers: Numbers, o: Any, calls: list[tuple[str, str]], left: int) -> None:
    """Fail if the result is wrong, or calls were served by other kernels than the case lists."""
    want = numbers.exact_o(left)
    kind = "fp8bf16" if any("_fp8bf16_" in names for _, names in calls) else "bf16"
    unit = numbers.v_scale.double() if kind == "fp8bf16" else 1  # its tolerance is of weights times V without the scale
    verdict = agreement((o.reshape(want.shape).double() / unit).numpy(), (want / unit).numpy(), kind)
    assert verdict.passed, str(verdict)
    assert {name for name, _ in calls} == case.calls.keys(), calls
    for name, kernels in calls:
        assert any(fnmatch(kernels, pattern) for pattern in case.calls[name].split()), f"{name}: {kernels}"

"""The ranges of rounding.yaml: the mean error of O that a library's way of rounding leaves.

A kernel that rounds to zero instead of to nearest has each element within its tolerance. The mean of all elements shows
it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from ckpm.base.paths import data
from ckpm.base.tablefile import Record, Text, read_table
from ckpm.kernels.library.manifest import Manifest
from ckpm.matrix.problems.case import SuiteCase

_FILE = data("matrix", "rounding.yaml")


class _Range(Record, frozen=True):
    upstreams: tuple[str, ...]
    archs: tuple[str, ...]
    dtype: str
    mean: tuple[float, float]
    why: Text
    bf16: tuple[str, ...] = ()  # conversions of manifests; () stands for all


class RoundingTable(Record, frozen=True):
    """The record of rounding.yaml."""

    ranges: tuple[_Range, ...]


@functools.cache
def _ranges() -> tuple[_Range, ...]:
    return read_table(_FILE, RoundingTable).record.ranges


def check_rounding(reply: Mapping[str, Any], problem: SuiteCase, manifest: Manifest, arch: str) -> Mapping[str, Any]:
    """Return the reply to a case; one that passed with a mean error out of its library's range is wrong."""
    shift = reply.get("mean_shift")
    if shift is None or reply["outcome"] != "passed":
        return reply
    for row in _ranges():
        if row.bf16 and manifest.bf16 not in row.bf16:
            continue
        if manifest.upstream in row.upstreams and arch in row.archs and problem.dtype == row.dtype:
            least, most = row.mean
            if not least <= shift <= most:
                message = f"O: mean error {shift:+.2f} of a step, outside {least:+.2f} to {most:+.2f}: {row.why}"
                return {**reply, "outcome": "wrong", "message": message}
    return reply

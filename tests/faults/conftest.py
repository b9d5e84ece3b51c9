"""Fixtures of the tests of faults: the stub compiler of the unit tests, and a library of one real kernel."""

from __future__ import annotations

from tests.build.conftest import built, trees
from tests.unit.conftest import copied_manifest, request_for, stub_toolchain, tree

__all__ = ["built", "copied_manifest", "request_for", "stub_toolchain", "tree", "trees"]

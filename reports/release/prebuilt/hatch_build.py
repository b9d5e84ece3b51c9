"""Tag of the wheel: its libraries are linked for x86-64 and glibc 2.28, and use no extension module of Python."""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PlatformTag(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        build_data.update(pure_python=False, tag="py3-none-manylinux_2_28_x86_64")

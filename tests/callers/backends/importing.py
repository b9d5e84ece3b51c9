"""Import modules of a package that is unpacked and not installed: the named modules are its own, all others stand-ins.

No ``__init__`` runs. A stand-in has the members that are given for it, and its other names are missing.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from ckpm.base.errors import UsageError
from tests.callers.missing import Module


class Finder(MetaPathFinder, Loader):
    """Finds modules of the packages ``tops``: ``own`` in ``folder``, or as stand-ins with ``members``."""

    def __init__(
        self, folder: Path, tops: Collection[str], own: Collection[str], members: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self.folder, self.tops, self.own, self.members = folder, tops, own, members

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in self.tops:
            return None
        if fullname not in self.own:
            return ModuleSpec(fullname, self, is_package=True)
        there = self.folder / f"{fullname.replace('.', '/')}.py"
        if not there.is_file():
            raise UsageError(f"{there} is not there: is {self.folder} the unpacked package?")
        return spec_from_file_location(fullname, there)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Module(spec.name, **self.members.get(spec.name, {}))

    def exec_module(self, module: ModuleType) -> None:
        pass


def install_finder(finder: Finder) -> None:
    """Let imports take a package's modules from the finder."""
    sys.meta_path.insert(0, finder)

"""Names of a package that nothing stands in for: a test that calls such a name is skipped with it as the reason."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest


class Missing:
    """A name without a stand-in. It can be a base class, a type, and a decorator, which changes nothing."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Missing:
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self.name}.{name}")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[()]:
        return ()

    def __or__(self, other: Any) -> Missing:
        return self

    __ror__ = __getitem__ = __or__

    def __iter__(self) -> Iterator[Missing]:
        return iter((self, self))

    def __bool__(self) -> bool:
        return False

    def __call__(self, *args: Any, **named: Any) -> Any:
        if "PYTEST_CURRENT_TEST" in os.environ:
            pytest.skip(f"refused: {self.name} is not served")
        decorates = len(args) == 1 and not named and callable(args[0]) and not isinstance(args[0], Missing)
        return args[0] if decorates else self


class Module(ModuleType):
    """A module whose other names are missing."""

    def __init__(self, name: str, **members: Any) -> None:
        super().__init__(name)
        self.__dict__.update(members)
        self.__spec__ = ModuleSpec(name, None, is_package=True)  # importlib and PyTorch look for it
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Missing:
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self.__name__}.{name}")

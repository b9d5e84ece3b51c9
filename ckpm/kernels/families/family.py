"""The record of a family of kernels, used by everything that renders, builds, compares and launches them.

A module of this folder makes one for its family, and ckpm/kernels/families/table.py lists them. Code that depends on
a family looks it up there; nothing compares a family's name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ckpm.base.paths import data
from ckpm.kernels.abi import CheckedArguments
from ckpm.kernels.families.spellings import Features
from ckpm.matrix.dialects import without_features
from ckpm.matrix.keys import Key
from ckpm.matrix.problems.case import SuiteCase

_HEADERS = data("kernels")
INCLUDE = _HEADERS / "include"
INCLUDE_FWD = _HEADERS / "include_fwd"  # a folder of its own: a change there leaves batch prefill's objects
INCLUDE_BWD = _HEADERS / "include_bwd"

Values = Mapping[str, Any]  # axis -> value, as ckpm.matrix.names.parse reads them from a kernel's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One way in which a kernel must work: candidate launches, of which the first that dispatch sends to it counts."""

    label: str
    candidates: tuple[SuiteCase, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The host side of a library, shared by its families.

    ``dialects`` are the dialects with templates, CK of November 2025 by default. ``dispatch`` returns the C++ text for
    keys in upstream's order of emission, ``harness`` the text of the C ABI for a dialect. ``arguments`` is the C ABI's
    struct of one launch, ``headers`` the folders of our own headers that its sources include.

    ``unread`` are fields that have a number in every problem and must be 0 for this library.

    ``api`` is CK's function that dispatch defines, '' if it has the library's name. ``functions`` are CK's host
    functions that its instances specialise. With ``several`` launches in one function, each is under conditions.
    With ``whole_units`` parity compares kernels in units, as they are built, and on every arch. Else it compares them
    one by one, on one arch of each arch trait. If ``compiled_hdims`` is not empty, parity compares the machine code of
    these head dims alone, because the kernels take long to compile.

    ``may_lack`` are families of the library that a selection may leave out.

    ``table_problems``: its problems come from matrix/ (problems/ and performance.yaml), not from keys.
    ``races``: the checker of races may run, because no two waves of a kernel write the same bytes of LDS on purpose.
    """

    dispatch: Callable[[Sequence[Key], Features], str]
    harness: Callable[[str, Features], str]
    arguments: type[CheckedArguments]
    functions: tuple[str, ...]
    dialects: Callable[[], tuple[str, ...]] = lambda: ("ck-2025-11",)
    api: str = ""
    headers: tuple[Path, ...] = (INCLUDE, INCLUDE_FWD)
    unread: frozenset[str] = field(default=frozenset())
    several: bool = False
    whole_units: bool = False
    compiled_hdims: frozenset[int] = field(default=frozenset())
    may_lack: frozenset[str] = field(default=frozenset())
    table_problems: bool = False
    races: bool = True

    def renders(self, dialect: str) -> bool:
        """True if the library has templates for a dialect: its own, or those of the base of its features."""
        return without_features(dialect)[0] in self.dialects()


def on_own_trait(values: Values, arch: str, archs: Mapping[str, tuple[str, ...]]) -> bool:
    return values["arch_trait"] in archs.get(arch, ())


def same_dispatch_level(key: Key, main: Key) -> bool:
    """True if two kernels have one arch trait, data type, head dim and mode, the axes of CK's dispatch levels."""
    return all(getattr(key, name) == getattr(main, name) for name in ("arch_trait", "dtype", "hdim_q", "mode"))


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFamily:
    """One family of kernels.

    ``instance`` is the template of a key's specialisation. ``choices`` decide its conditions, ``substitutions`` (of a
    key, for a namespace) its values. ``unit`` is the template of a translation unit.

    ``symbol`` is a pattern of the mangled name of a key's kernels, ``variants`` the number of kernels that a key is
    compiled to for an arch. ``compiled_for`` is true if a key has device code on an arch, given arch traits by arch.

    ``library`` is the family whose ``host`` the kernels are built with, '' for this family itself. For a family of
    another library, ``serves`` is true if a kernel may be a stage of a launch with a kernel of that family.

    ``scenarios`` are small launches that test a kernel, derived from its key and the other keys of its library; None
    if the family has none. ``not_laid_out`` returns the reason if no scenario can provide what a kernel needs.
    """

    name: str
    substitutions: Callable[[Key, Features, str], Mapping[str, str]]
    instance: str
    symbol: Callable[[Values], re.Pattern[str]]
    unit: str = "fwd_unit.hip.j2"
    choices: Callable[[Key, Features], Mapping[str, object]] = lambda key, features: {}
    variants: Callable[[Values, str], int] = lambda values, arch: 1
    compiled_for: Callable[[Values, str, Mapping[str, tuple[str, ...]]], bool] = on_own_trait
    library: str = ""
    serves: Callable[[Key, Key], bool] = same_dispatch_level
    host: Host | None = None
    scenarios: Callable[[Key, Sequence[Key]], tuple[Scenario, ...]] | None = None
    not_laid_out: Callable[[Key], str | None] = lambda key: None

"""What a family of kernels is to everything that renders, builds, compares and launches them: one object.

A module of this folder makes one for its family, and kernels/families/table.py lists them. Code that depends on
a family looks it up there and asks it; nothing compares a family's name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ckpm.attention.launch.c_abi import CheckedArguments
from ckpm.kernels.families.words import Features
from ckpm.matrix.keys import Key

_HEADERS = Path(__file__).resolve().parents[1]
INCLUDE = _HEADERS / "include"
INCLUDE_FWD = _HEADERS / "include_fwd"  # apart: a change there leaves batch prefill's objects
INCLUDE_BWD = _HEADERS / "include_bwd"

Values = Mapping[str, Any]  # axis -> value, as ckpm.matrix.names.parse reads them from a kernel's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One way in which a kernel must work: candidate launches; the first that dispatch sends to it counts.

    A candidate is a SuiteCase, or an AppendRequest.
    """

    label: str
    candidates: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The host side of a library: what the families in it share.

    ``dialects``: those whose templates are known. ``dispatch`` and ``harness`` are C++ texts: of keys in upstream's
    order of emission, and of the C ABI for a dialect. ``arguments`` is the C ABI's struct of one launch, ``headers``
    the folders of our own headers that its sources include.

    ``unread`` are fields that such a problem always has a number for and that this library must be given as 0.

    ``api`` is CK's function that dispatch defines, '' for the one that is called as the library is. ``functions`` are
    CK's host functions that its instances specialise. With ``several`` launches in one of them each
    is under conditions. ``whole_units``: parity compares kernels in units, as they are built, and on every arch; else
    one by one, on one arch of each arch trait. Where kernels take long to compile it takes those of ``compiled_hdims``
    alone for machine code.

    ``may_lack`` are families of the library that some of its kernels need no kernel of.

    ``table_problems``: its problems are those of matrix/tables (problems/ and performance.yaml), not made from keys.
    ``races``: no kernel of it writes to LDS what another wave writes there, too, so races may be looked for.
    """

    dialects: Callable[[], tuple[str, ...]]
    dispatch: Callable[[Sequence[Key], Features], str]
    harness: Callable[[str, Features], str]
    arguments: type[CheckedArguments]
    functions: tuple[str, ...]
    api: str = ""
    headers: tuple[Path, ...] = (INCLUDE, INCLUDE_FWD)
    unread: frozenset[str] = field(default=frozenset())
    several: bool = False
    whole_units: bool = False
    compiled_hdims: frozenset[int] = field(default=frozenset())
    may_lack: frozenset[str] = field(default=frozenset())
    table_problems: bool = False
    races: bool = True


def no_choices(key: Key, features: Features) -> Mapping[str, object]:
    """An instance template without conditions."""
    return {}


def one_kernel(values: Values, arch: str) -> int:
    return 1


def on_own_trait(values: Values, arch: str, archs: Mapping[str, tuple[str, ...]]) -> bool:
    return values["arch_trait"] in archs.get(arch, ())


def same_place(key: Key, main: Key) -> bool:
    """Whether two kernels are of one arch trait, data type, head dim and mode, by which CK's dispatch places both."""
    return all(getattr(key, name) == getattr(main, name) for name in ("arch_trait", "dtype", "hdim_q", "mode"))


def no_reason(key: Key) -> str | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One family of kernels.

    ``instance`` is the template of a key's specialisation: ``choices`` decide its conditions, ``words`` (of a key,
    for a namespace) fill its places. ``unit`` is the template of a translation unit.

    ``symbol`` is what the mangled name of a key's kernels contains, ``variants`` to how many kernels a key is compiled
    for an arch.
    ``compiled_for``: whether a key has device code on an arch, given the family's arch traits by arch.

    ``library`` is the family whose ``host`` the kernels are built with, '' for this family itself. Of another family's
    ``serves`` says whether a kernel may be a stage of a launch with one of that family.

    ``scenarios`` are small launches that a kernel must be seen to do, derived from its key and from the other keys of
    its library; None if there are none of its own. ``not_laid_out`` says what a kernel needs that they can't give it.
    """

    name: str
    words: Callable[[Key, Features, str], Mapping[str, str]]
    instance: str
    symbol: Callable[[Values], re.Pattern[str]]
    unit: str = "fwd_unit.hip.j2"
    choices: Callable[[Key, Features], Mapping[str, object]] = no_choices
    variants: Callable[[Values, str], int] = one_kernel
    compiled_for: Callable[[Values, str, Mapping[str, tuple[str, ...]]], bool] = on_own_trait
    library: str = ""
    serves: Callable[[Key, Key], bool] = same_place
    host: Host | None = None
    scenarios: Callable[[Key, Sequence[Key]], tuple[Scenario, ...]] | None = None
    not_laid_out: Callable[[Key], str | None] = no_reason

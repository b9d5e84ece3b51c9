"""Lists of keys for several test modules, each made once in a process, as enumerating takes most of their time.

Tests must not change them: a test that edits a table enumerates its own family.
"""

from __future__ import annotations

import functools

from ckpm.matrix.dialects import dialect
from ckpm.matrix.enumeration import enumerate_keys, enumerate_names
from ckpm.matrix.keys import Key
from ckpm.matrix.published import StoredList
from ckpm.matrix.selection import Selection, select


@functools.cache
def keys_of(name: str, family: str, arch: str = "gfx950", receipt: int = 0, mask_impl: str = "simplified") -> list[Key]:
    """The keys of a family in the dialect ``name``."""
    return enumerate_keys(dialect(name).family(family), arch=arch, receipt=receipt, mask_impl=mask_impl)


@functools.cache
def names_of(
    name: str, family: str, arch: str = "gfx950", receipt: int = 0, mask_impl: str = "simplified"
) -> list[str]:
    """The names of :func:`keys_of`, in half the time."""
    return enumerate_names(dialect(name).family(family), arch=arch, receipt=receipt, mask_impl=mask_impl)


@functools.cache
def select_keys(name: str, selection: Selection) -> list[Key]:
    """The keys that a selection takes from the dialect ``name``."""
    return select(dialect(name), selection)


@functools.cache
def stored_names(stored: StoredList) -> tuple[str, ...]:
    """Upstream's names of a stored list, sorted."""
    return stored.names()

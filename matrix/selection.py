"""A selection: which keys of a dialect a command works on. Everything in it combines with AND."""

from __future__ import annotations

import fnmatch
import functools
import hashlib
import importlib.util
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matrix.dialects import TABLES, Dialect, check_arch
from matrix.enumeration import enumerate_keys
from matrix.errors import (
    EmptySelectionError,
    FilterFileError,
    UnknownProfileError,
    UnknownTierError,
    UsageError,
)
from matrix.keys import Key
from matrix.tablefile import load
from matrix.where import Predicate, compile_where

MASK_IMPLS = ("simplified", "generic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What the user asked for, as given on the command line.

    ``families`` and ``archs`` are names; ``shard`` is (index from 1, count).
    """

    archs: tuple[str, ...]
    families: tuple[str, ...] = ("batch_prefill",)
    receipt: int = 0
    mask_impl: str = "simplified"
    tier: str = "full"
    profile: str | None = None
    filters: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    filter_files: tuple[Path, ...] = ()
    shard: tuple[int, int] | None = None

    def summary(self) -> str:
        """One line that says what narrows the selection, for messages and manifests."""
        parts = [f"archs {','.join(self.archs)}", f"family {','.join(self.families)}", f"receipt {self.receipt}"]
        parts += [f"masks {self.mask_impl}", f"tier {self.tier}"]
        parts += [f"profile {self.profile}"] if self.profile else []
        parts += [f"--filter '{glob}'" for glob in self.filters]
        parts += [f'--where "{text}"' for text in self.where]
        parts += [f"--filter-file {file}" for file in self.filter_files]
        parts += [f"shard {self.shard[0]}/{self.shard[1]}"] if self.shard else []
        return ", ".join(parts)


@functools.cache
def tiers() -> Mapping[str, tuple[str, ...]]:
    return load(TABLES / "tiers.yaml").get("tiers").map(lambda field: field.texts())


@functools.cache
def profiles() -> Mapping[str, str]:
    return load(TABLES / "profiles.yaml").get("profiles").map(lambda field: field.text())


def parse_shard(text: str) -> tuple[int, int]:
    """``3/16`` -> (3, 16). Raises UsageError."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"--shard {text!r}: write I/N with 1 <= I <= N, e.g. 3/16")
    return int(match[1]), int(match[2])


def select(dialect: Dialect, selection: Selection) -> list[Key]:
    """The selected keys, without repetition, in upstream's order of emission. May be empty.

    With several archs the result is the union: one library serves them all.
    """
    found: dict[str, Key] = {}
    for family_name in selection.families:
        family = dialect.family(family_name)
        for arch in selection.archs:
            check_arch(arch)
            keys = enumerate_keys(family, arch=arch, receipt=selection.receipt, mask_impl=selection.mask_impl)
            found |= {key.name: key for key in keys}
    predicates = [keep for _, keep in conditions(selection)]
    chosen = [key for key in found.values() if all(keep(key) for keep in predicates)]
    return take_shard(chosen, selection.shard) if selection.shard else chosen


def select_some(dialect: Dialect, selection: Selection) -> list[Key]:
    """Like :func:`select`, for commands that need at least one key.

    Raises:
        EmptySelectionError: nothing is left; the message says which condition removed the last key.
    """
    keys = select(dialect, selection)
    if keys:
        return keys
    raise EmptySelectionError(f"no kernel is selected ({selection.summary()}). {_what_emptied(dialect, selection)}")


def _what_emptied(dialect: Dialect, selection: Selection) -> str:
    for name in selection.families:
        family = dialect.family(name)
        if not set(selection.archs) & set(family.archs):
            return f"{dialect.name} has no {name} kernel for {', '.join(selection.archs)}: {family.absent}."
    bare = Selection(archs=selection.archs, families=selection.families, receipt=selection.receipt)
    keys = [*select(dialect, bare)]
    if not keys:
        return f"Receipt {selection.receipt} keeps no kernel of {', '.join(selection.families)} in {dialect.name}."
    keys = select(
        dialect,
        Selection(
            archs=selection.archs,
            families=selection.families,
            receipt=selection.receipt,
            mask_impl=selection.mask_impl,
        ),
    )
    for label, keep in conditions(selection):
        left = [key for key in keys if keep(key)]
        if not left:
            return f"{label} removes the last {len(keys)}, e.g. {keys[0].name}."
        keys = left
    return f"Shard {selection.shard} of {len(keys)} kernels is empty: use fewer shards."


def conditions(selection: Selection) -> list[tuple[str, Predicate]]:
    """Every condition of the selection with a label for messages.

    Raises:
        UnknownTierError, UnknownProfileError, WhereError, FilterFileError: before any key was looked at.
    """
    found: list[tuple[str, Predicate]] = []
    if selection.tier not in tiers():
        raise UnknownTierError(selection.tier, tiers())
    if selection.tier != "full":
        found.append((f"Tier {selection.tier}", _any(tiers()[selection.tier])))
    if selection.profile is not None:
        if selection.profile not in profiles():
            raise UnknownProfileError(selection.profile, profiles())
        found.append((f"Profile {selection.profile}", compile_where(profiles()[selection.profile])))
    found += [(f"--filter '{glob}'", _glob(glob)) for glob in selection.filters]
    found += [(f"--where {text!r}", compile_where(text)) for text in selection.where]
    found += [(f"--filter-file {file}", load_filter_file(file)) for file in selection.filter_files]
    return found


def _any(texts: Sequence[str]) -> Predicate:
    predicates = [compile_where(text) for text in texts]
    return lambda key: any(keep(key) for keep in predicates)


def _glob(glob: str) -> Predicate:
    """Case-sensitive glob over the name. A gload kernel is also kept when its bload twin's name fits.

    Upstream tests --filter against the bload name alone and lets the twin follow, so that a filtered library still
    serves KV pools over 2 GB; here a glob may also name gload kernels themselves.
    """
    match = re.compile(fnmatch.translate(glob)).match

    def keep(key: Key) -> bool:
        twin = key.name.replace("_gload_", "_bload_") if key.load == "gload" else key.name
        return match(key.name) is not None or match(twin) is not None

    return keep


def load_filter_file(file: Path) -> Callable[[Key], bool]:
    """The ``keep`` of a Python file ``def keep(key) -> bool``.

    Raises:
        FilterFileError: it can't be read, does not run, has no ``keep``; later, when ``keep`` raises or returns
            something else than a bool.
    """
    spec = importlib.util.spec_from_file_location("ck_prefill_filter_file", file)
    if not file.is_file() or spec is None or spec.loader is None:
        raise FilterFileError(f"--filter-file {file}: no such Python file. It must define keep(key) -> bool.")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise FilterFileError(f"--filter-file {file}: {_place(error, file)}") from error
    keep = getattr(module, "keep", None)
    if not callable(keep):
        raise FilterFileError(f"--filter-file {file}: it defines no function keep(key) -> bool.")

    def checked(key: Key) -> bool:
        try:
            verdict = keep(key)
        except Exception as error:
            raise FilterFileError(f"--filter-file {file}: keep({key.name}): {_place(error, file)}") from error
        if not isinstance(verdict, bool):
            raise FilterFileError(f"--filter-file {file}: keep({key.name}) returned {verdict!r}; return True or False.")
        return verdict

    return checked


def _place(error: Exception, file: Path) -> str:
    line = error.lineno if isinstance(error, SyntaxError) else None
    trace = error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).name == file.name:
            line = trace.tb_lineno
        trace = trace.tb_next
    where = f"line {line}: " if line else ""
    return f"{where}{type(error).__name__}: {error}. Mend the file."


def take_shard(keys: Sequence[Key], shard: tuple[int, int]) -> list[Key]:
    """Shard ``index`` (from 1) of ``count``: dealt by turns in the order of the names' sha256.

    Shards are disjoint, complete, differ by one key at the most, depend on the set of names alone, and mix expensive
    tiles evenly. The keys keep their order.
    """
    index, count = shard
    dealt = sorted(keys, key=lambda key: hashlib.sha256(key.name.encode()).digest())
    mine = {key.name for key in dealt[index - 1 :: count]}
    return [key for key in keys if key.name in mine]


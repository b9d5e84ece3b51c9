"""A selection: the keys of a dialect that a command works on. Its conditions combine with AND."""

from __future__ import annotations

import dis
import errno
import fnmatch
import functools
import hashlib
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ckpm.base.bounded import LARGEST_TABLE, read_bytes
from ckpm.base.display import one_line
from ckpm.base.errors import UnknownWordError, UsageError, WhereError
from ckpm.base.tablefile import Field
from ckpm.matrix.dialects import DEFAULT_FAMILY, Dialect, selections
from ckpm.matrix.enumeration import enumerate_keys
from ckpm.matrix.keys import Key
from ckpm.matrix.names import names_with
from ckpm.matrix.where import Predicate, any_of, compile_where

# option of each word of a summary
_OPTIONS = {
    "archs": "--arch",
    "family": "--family",
    "receipt": "--receipt",
    "masks": "--mask",
    "tier": "--tier",
    "profile": "--profile",
    "shard": "--shard",
}
_SHOWN, _LONGEST = 40, 500  # characters of a wrong value, and of the message of a user's error


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The kernels that the user selects, by options of the command line.

    ``receipt`` is the number of one of CK's subsets, ``profile`` names conditions of
    matrix/selections.yaml. ``mask_impl`` is CK's set of mask types. ``shard`` is (index from 1, count).
    """

    archs: tuple[str, ...]
    families: tuple[str, ...] = (DEFAULT_FAMILY,)
    receipt: int = 0
    mask_impl: str = "simplified"
    tier: str = "full"
    profile: str | None = None
    filters: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    filter_files: tuple[Path, ...] = ()
    shard: tuple[int, int] | None = None

    def summary(self) -> str:
        """Everything that narrows the selection in one line, for messages and manifests; it has no path.

        Filters and expressions are quoted as a shell reads them.
        """
        parts = [f"archs {','.join(self.archs)}", f"family {','.join(self.families)}", f"receipt {self.receipt}"]
        parts += [f"masks {self.mask_impl}", f"tier {self.tier}"]
        parts += [f"profile {self.profile}"] if self.profile else []
        parts += [f"--filter {shlex.quote(glob)}" for glob in self.filters]
        parts += [f"--where {_quote(text)}" for text in self.where]
        for file in self.filter_files:
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            parts.append(f"--filter-file {shlex.quote(file.name)} (sha256 {digest})")
        parts += [f"shard {self.shard[0]}/{self.shard[1]}"] if self.shard else []
        return ", ".join(parts)


def _quote(text: str) -> str:
    """Put an expression in double quotes, which leave its apostrophes as they are, unless a shell would change it."""
    return shlex.quote(text) if set('"$`\\!') & set(text) else f'"{text}"'


def as_options(summary: str) -> str:
    """The options that select what :meth:`Selection.summary` describes; files of filters are named without folder."""
    options = re.sub(rf"(^|, )({'|'.join(_OPTIONS)}) ", lambda match: f" {_OPTIONS[match[2]]} ", summary)
    return re.sub(r",? (--filter-file .+?) \(sha256 \w+\)|,( --)", r" \1\2", options).replace("  ", " ").strip()


@functools.cache
def tiers() -> Mapping[str, tuple[str, ...]]:
    """The --where expressions of each tier, of which a key must meet one."""
    table = selections()
    for name, texts in table.record.tiers.items():
        for index in range(len(texts)):
            _check_expression(table.at("tiers", name, index))
    return table.record.tiers


@functools.cache
def profiles() -> Mapping[str, str]:
    """The --where expression of each profile."""
    table = selections()
    for name in table.record.profiles:
        _check_expression(table.at("profiles", name))
    return table.record.profiles


def _check_expression(field: Field) -> None:
    try:
        compile_where(field.value)
    except WhereError as error:
        raise field.fail(str(error)) from error


def parse_shard(text: str) -> tuple[int, int]:
    """Parse a shard: ``3/16`` is (3, 16)."""
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"--shard {text!r}: write I/N with 1 <= I <= N, e.g. 3/16")
    return int(match[1]), int(match[2])


def select(dialect: Dialect, selection: Selection) -> list[Key]:
    """The selected keys, without repetition, in upstream's order of emission. May be empty.

    With several archs the result is the union: one library serves them all.
    """
    keys, _ = _narrow(dialect, selection)
    return keys


def select_some(dialect: Dialect, selection: Selection) -> list[Key]:
    """Select keys for commands that need at least one. The error names the condition that removed the last key."""
    keys, emptied = _narrow(dialect, selection)
    if not keys:
        raise UsageError(f"no kernel is selected ({selection.summary()}). {emptied}", kind="empty-selection")
    return keys


def absences(dialect: Dialect, selection: Selection) -> list[tuple[str, str, str]]:
    """The (arch, family, reason) of each arch of the selection that a family has no kernels for."""
    for arch in selection.archs:
        dialect.check_arch(arch)
    return [
        (arch, name, f"{dialect.name} has no {name} kernel for {arch}: {dialect.family(name).absent}")
        for name in selection.families
        for arch in selection.archs
        if arch not in dialect.family(name).archs
    ]


def _narrow(dialect: Dialect, selection: Selection) -> tuple[list[Key], str]:
    """The selected keys and, if there are none, a sentence on the condition that removed the last."""
    conditions(selection)  # first, so that a mistyped tier is an error for an arch without kernels, too
    absent = absences(dialect, selection)
    by_name = _kernels_by_name(dialect, selection)
    left = list(by_name.values())
    if not left and len(absent) == len(selection.families) * len(selection.archs):
        return [], "; ".join(reason for _, _, reason in absent) + "."
    if not left:
        return [], f"Receipt {selection.receipt} keeps no kernel of {', '.join(selection.families)} in {dialect.name}."
    for label, keep in conditions(_name_whole(selection, by_name)):
        before, left = left, [key for key in left if keep(key)]
        if not left:
            hint = (
                " Write '*PART*' for all names with a part."
                if label.startswith("--filter '") and not is_glob(label)
                else ""
            )
            return [], f"{label} removes the last {len(before)}, e.g. {before[0].name}.{hint}"
    if selection.shard:
        before, left = left, take_shard(left, selection.shard)
        if not left:
            index, count = selection.shard
            return [], f"Shard {index}/{count} of {len(before)} kernels is empty: use fewer shards."
    return left, ""


def _kernels_by_name(dialect: Dialect, selection: Selection) -> dict[str, Key]:
    """All kernels of the selection's archs, families, receipt and masks by name, in upstream's order of emission."""
    by_name: dict[str, Key] = {}
    for name in selection.families:
        family = dialect.family(name)
        # archs with the most traits first: kernels of one arch precede shared kernels, as in dispatch
        for arch in sorted(selection.archs, key=lambda arch: -len(family.archs.get(arch, ()))):
            keys = enumerate_keys(family, arch=arch, receipt=selection.receipt, mask_impl=selection.mask_impl)
            by_name |= {key.name: key for key in keys}
    return by_name


def conditions_of(dialect: Dialect, selection: Selection) -> list[tuple[str, Predicate]]:
    """The conditions of a selection, whose filters may name one kernel of a dialect by a short name or a part."""
    if all(map(is_glob, selection.filters)):
        return conditions(selection)
    return conditions(_name_whole(selection, _kernels_by_name(dialect, selection)))


def _name_whole(selection: Selection, names: Iterable[str]) -> Selection:
    """The selection with whole names for filters that are a short name, or a part that only one kernel's name has.

    A kernel and its twin of the other load mode count as one, as in :func:`_glob`.
    """
    whole = []
    for text in selection.filters:
        there = [] if is_glob(text) else names_with(text, names)
        kernels = {name.replace("_gload_", "_bload_") for name in there}
        whole.append(min(there) if len(kernels) == 1 else text)
    return replace(selection, filters=tuple(whole))


def is_glob(text: str) -> bool:
    """True if the text of a filter has a wildcard. Other texts name one kernel."""
    return any(character in text for character in "*?[")


def conditions(selection: Selection) -> list[tuple[str, Predicate]]:
    """Every condition of the selection with a label for messages. Mistakes in them raise before a key is tested."""
    predicates: list[tuple[str, Predicate]] = []
    if selection.tier not in tiers():
        raise UnknownWordError("tier", selection.tier, tiers())
    if selection.tier != "full":
        predicates.append((f"Tier {selection.tier}", any_of([compile_where(text) for text in tiers()[selection.tier]])))
    if selection.profile is not None:
        if selection.profile not in profiles():
            raise UnknownWordError("profile", selection.profile, profiles())
        predicates.append((f"Profile {selection.profile}", compile_where(profiles()[selection.profile])))
    predicates += [(f"--filter '{glob}'", _glob(glob)) for glob in selection.filters]
    predicates += [(f"--where {text!r}", compile_where(text, "--where ")) for text in selection.where]
    predicates += [(f"--filter-file {file}", load_filter_file(file)) for file in selection.filter_files]
    return predicates


def _glob(glob: str) -> Predicate:
    """Make a predicate of a case-sensitive glob over names. A glob that matches a bload name keeps its gload twin.

    bload kernels read K and V with 32-bit offsets, gload kernels with 64-bit addresses. Upstream tests --filter against
    the bload name alone and lets the gload kernel follow. A filtered library then still serves KV pools over 2 GB. Here
    a glob may also name gload kernels themselves.
    """
    match = re.compile(fnmatch.translate(glob)).match

    def keep(key: Key) -> bool:
        with_bload = key.name.replace("_gload_", "_bload_") if key.load == "gload" else key.name
        return match(key.name) is not None or match(with_bload) is not None

    return keep


def load_filter_file(file: Path, function: str = "keep", argument: str = "key") -> Callable[[Any], bool]:
    """The ``function`` of a Python file, ``def keep(key) -> bool``; its argument has a ``name``.

    Mistakes in the file are UsageErrors; the function, too, raises one instead of its own errors and of other results.
    """
    names: dict[str, Any] = {"__name__": "ck_prefill_filter_file", "__file__": str(file)}
    try:
        # An import would leave a __pycache__ in the user's folder, and could read a stale one.
        exec(compile(_source(file, f"{function}({argument})"), str(file), "exec"), names)  # noqa: S102 - the user wants the file run
    except UsageError:
        raise
    except BaseException as error:
        if _is_interrupt(error):
            raise
        raise _refusal(file, _error_line(error, file)) from error
    keep = names.get(function)
    if not callable(keep):
        raise _refusal(file, f"it defines no function {function}({argument}) -> bool.")

    def check(key: Any) -> bool:
        try:
            verdict = keep(key)
        except BaseException as error:
            if _is_interrupt(error):
                raise
            raise _refusal(file, f"{function}({key.name}): {_error_line(error, file)}") from error
        if not isinstance(verdict, bool):
            what = repr(verdict)[:_SHOWN] if isinstance(verdict, int | str | None) else type(verdict).__name__
            raise _refusal(file, f"{function}({key.name}) returned {what}; return True or False.")
        return verdict

    return check


def _refusal(file: Path, reason: str) -> UsageError:
    return UsageError(f"--filter-file {file}: {reason}", kind="filter-file")


def _source(file: Path, function: str) -> bytes:
    """Read a filter file."""
    try:
        return read_bytes(file, LARGEST_TABLE)
    except (OSError, ValueError) as error:
        explanations = {errno.ENOENT: "no such file", errno.EISDIR: "it is a folder, not a file"}
        number, what = (error.errno, error.strerror) if isinstance(error, OSError) else (None, error)
        reason = f"{explanations.get(number or 0, what)}. It must be Python and define {function} -> bool."
        raise _refusal(file, reason) from error


def _is_interrupt(error: BaseException) -> bool:
    """Return True for Ctrl-C while a user's file ran, False for an exception that the file raised."""
    return isinstance(error, KeyboardInterrupt) and not _is_raised(error)


def _is_raised(error: BaseException) -> bool:
    """Return True if the exception comes from a raise statement, not from a signal between two instructions."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_code[trace.tb_lasti] == dis.opmap["RAISE_VARARGS"]


def _error_text(error: BaseException) -> str:
    """The message of an error, for which the code of a user's class may fail, too."""
    try:
        return one_line(str(error), _LONGEST)
    except BaseException:
        return "its message can't be read"


def _error_line(error: BaseException, file: Path) -> str:
    """The error with the line of the user's file that it comes from, if any."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f"line {error.lineno}: SyntaxError: {error.msg}. Fix the file."
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    where = f"line {line}: " if line else ""
    return f"{where}{type(error).__name__}: {_error_text(error)}. Fix the file."


def take_shard(keys: Sequence[Key], shard: tuple[int, int]) -> list[Key]:
    """The keys of shard ``index`` (from 1) of ``count``, dealt by turns in the order of the names' sha256.

    Shards are disjoint and complete. Their sizes differ by one key at the most. They depend on the set of names alone,
    and mix expensive tiles evenly. The keys keep their order.
    """
    index, count = shard
    names = set(_dealt(keys)[index - 1 :: count])
    return [key for key in keys if key.name in names]


def shard_of(keys: Sequence[Key], name: str, count: int) -> int:
    """The shard of ``count`` (from 1) that the kernel ``name`` of ``keys`` is dealt to."""
    return _dealt(keys).index(name) % count + 1


def _dealt(keys: Sequence[Key]) -> list[str]:
    return sorted((key.name for key in keys), key=lambda name: hashlib.sha256(name.encode()).digest())

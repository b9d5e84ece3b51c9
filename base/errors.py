"""One class for each kind of failure, each with its own exit code.

A message says what happened, where (file, line, field) and what to do. The command-line entry points of all rooms
print the message and end with ``exit_code``. Codes 2-19 and 90-99 belong to matrix/, 20-39, 100-119 (containers,
many machines) and 230-239 (guard) to kernels/, 40-59 to reports/.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from .display import one_line

_LONGEST_WORD = 120


class CkPrefillError(Exception):
    """Base of every failure that a user can cause or fix.

    ``infrastructure`` is True where the network or a service failed and not what was checked: the same command may
    succeed when it is tried again, which is the only kind of failure that a runner tries again.
    """

    exit_code = 1
    infrastructure = False


class UsageError(CkPrefillError):
    """A command line that says something impossible: an unknown option, a malformed shard, an empty value."""

    exit_code = 2


class UnknownWordError(CkPrefillError):
    """A word that is not in the table it should come from. Subclasses name the table."""

    kind = "word"

    def __init__(self, word: str, known: Iterable[str]) -> None:
        super().__init__(unknown_word(self.kind, word, known))
        self.word = word


def unknown_word(kind: str, word: str, known: Iterable[str]) -> str:
    """The complaint about a word that is not in its table, with those that it begins, or else the nearest."""
    names = [str(k) for k in known]
    longer = [name for name in names if name.startswith((f"{word}_", f"{word}-"))]
    close = difflib.get_close_matches(word, longer, n=3, cutoff=0) or difflib.get_close_matches(word, names, n=1)
    hint = f"; did you mean {_either(close)}?" if close else "."
    return f"unknown {kind} '{one_line(word, _LONGEST_WORD)}'{hint} Known: {', '.join(names)}."


def _either(words: Sequence[str]) -> str:
    *first, last = (f"'{word}'" for word in words)
    return f"{', '.join(first)} or {last}" if first else last


class UnknownArchError(UnknownWordError):
    kind, exit_code = "arch", 3


class NoListOfArchError(CkPrefillError):
    """An arch of which nothing is known in a dialect: that it had no kernels would be untrue."""

    exit_code = 91


class UnknownReceiptError(UnknownWordError):
    kind, exit_code = "receipt", 4


class UnknownProfileError(UnknownWordError):
    kind, exit_code = "profile", 5


class UnknownTierError(UnknownWordError):
    kind, exit_code = "tier", 6


class UnknownDialectError(UnknownWordError):
    kind, exit_code = "dialect", 7


class UnknownUpstreamError(UnknownWordError):
    kind, exit_code = "upstream", 8


class UnknownFamilyError(UnknownWordError):
    kind, exit_code = "family", 9


class TableError(CkPrefillError):
    """A YAML table that can't be read or says something impossible. The message starts with file:line: field."""

    exit_code = 10


class EmptySelectionError(CkPrefillError):
    """Filters, shard, receipt and tier together leave no kernel."""

    exit_code = 11


class WhereError(CkPrefillError):
    """A --where expression that does not parse, names an unknown field, or uses more than comparisons and logic."""

    exit_code = 12


class FilterFileError(CkPrefillError):
    """A --filter-file that can't be loaded, has no keep(key), raises, or returns no bool."""

    exit_code = 13


class NameSyntaxError(CkPrefillError):
    """A kernel name that the dialect's grammar can't parse, or a name outside the matrix."""

    exit_code = 14


class RowError(CkPrefillError):
    """A row of an exported kernel list that lacks a column or holds an impossible value."""

    exit_code = 15


class OutputError(CkPrefillError):
    """A result that can't be written: no permission, a file where a folder is needed, a device that refuses."""

    exit_code = 16


class UnknownSuiteError(UnknownWordError):
    kind, exit_code = "suite", 17


class ProblemError(CkPrefillError):
    """A problem that doesn't exist, or whose sizes, page ids or layout contradict one another."""

    exit_code = 18


class LedgerError(CkPrefillError):
    """A ledger entry that has expired: the defect must be looked at again."""

    exit_code = 19


class DiskFullError(OutputError):
    """A result, build output or cache entry that can't be written because the disk is full."""

    exit_code = 27  # of kernels/: builds fill disks


class OverwriteError(CkPrefillError):
    """An output that would replace an input of the same command, or a file that somebody else wrote."""

    exit_code = 97


class UntrustedFileError(CkPrefillError):
    """Something that would be run, and that another user owns or can write to."""

    exit_code = 98


class SweepError(CkPrefillError):
    """A sweep configuration with an unknown variant, trait, family, field or value.

    The message starts with file:line: path and names the nearest known word.
    """

    exit_code = 90


class ConfigurationError(CkPrefillError):
    """A hand-written configuration that can't be read at all: no such file, no YAML or JSON, no mapping."""

    exit_code = 95


class InvalidConfigurationError(CkPrefillError):
    """A configuration or kernel that validation refuses; the report has said what is wrong."""

    exit_code = 96


class NotACheckoutError(CkPrefillError):
    """A folder that should be a git checkout is none, or git can't be run."""

    exit_code = 92


class UnknownRevisionError(CkPrefillError):
    """A revision that names no commit of this checkout."""

    exit_code = 93


class ShallowCloneError(CkPrefillError):
    """A commit that a shallow clone does not have."""

    exit_code = 94


class ProcessLimitError(CkPrefillError):
    """The system allows this user, or this container, no further process or thread."""

    exit_code = 99
    infrastructure = True

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}: the system allows no further process (ulimit -u; pids.max of a container). Allow more, or take "
            "fewer at once with -j."
        )


class ToolchainMissingError(CkPrefillError):
    """The chosen toolchain is not installed, or its compiler can't be started."""

    exit_code = 20


class CompileError(CkPrefillError):
    """A compiler failed. The message names the unit and contains the compiler's first errors."""

    exit_code = 21


class LinkError(CkPrefillError):
    """The link of a library failed. The message names the library and the symbols or files in question."""

    exit_code = 22


class NotACkTreeError(CkPrefillError):
    """A folder that should contain a Composable Kernel source tree contains something else."""

    exit_code = 23


class UnfitTreeError(CkPrefillError):
    """No dialect of the matrix describes the version of a Composable Kernel tree."""

    exit_code = 24


class ChecksumError(CkPrefillError):
    """The sha256 of a downloaded or cached file is not the pinned one."""

    exit_code = 25


class DownloadError(CkPrefillError):
    """A pinned package could not be fetched."""

    exit_code = 26
    infrastructure = True


class CodeObjectError(CkPrefillError):
    """A file has no readable GPU code: truncated, no fat binary, metadata stripped, or of an unknown arch."""

    exit_code = 28


class LibraryError(CkPrefillError):
    """A built library can't be loaded, or has another version of the C ABI. The message names the file."""

    exit_code = 29


class ParityError(CkPrefillError):
    """The matrix and an upstream disagree: on names, bindings, dispatch or machine code."""

    exit_code = 30


class CodegenError(CkPrefillError):
    """The upstream's generate.py failed. The message contains the command and the end of its stderr."""

    exit_code = 31


class CppTextError(CkPrefillError):
    """The parity check can't follow generated C++, upstream's or ours. The message quotes it."""

    exit_code = 32


class NotReproducibleError(CkPrefillError):
    """Two builds of the same selection differ in at least one byte; the message lists the artifacts."""

    exit_code = 33


class BenchError(CkPrefillError):
    """A number could not be measured."""

    exit_code = 34


class RecordError(CkPrefillError):
    """A record (results, counters, a manifest) is missing, is not JSON, or lacks a field. Names file and field."""

    exit_code = 35


class DeviceError(CkPrefillError):
    """A requested device is missing or can't be started. The message lists the devices."""

    exit_code = 36


class HipError(CkPrefillError):
    """A call of the HIP runtime failed; ``error`` is its number."""

    exit_code = 37

    def __init__(self, message: str, error: int) -> None:
        super().__init__(message)
        self.error = error


class MeasureError(CkPrefillError):
    """A problem of the gates could not be measured: no library, no kernel that serves it, or a failed launch."""

    exit_code = 38


class LibraryMismatchError(CkPrefillError):
    """The library does not match the sha256 in its manifest."""

    exit_code = 39

"""Failures of building: compilers, source trees, downloads, code objects. Exit codes 20-39, one for each class.

Every message says what happened, where (command, path, symbol) and what to do about it.
"""

from __future__ import annotations

from matrix.base.errors import CkPrefillError
from matrix.base.errors import DiskFullError as DiskFullError  # 27 of these codes: matrix/ writes files, too
from matrix.base.errors import ProcessLimitError as ProcessLimitError
from matrix.base.errors import UntrustedFileError as UntrustedFileError


class ToolchainMissingError(CkPrefillError):
    """The chosen toolchain is not installed, or its compiler can't be started."""

    exit_code = 20


class CompileError(CkPrefillError):
    """A compiler ended with an error. The message names the unit and holds the compiler's first errors."""

    exit_code = 21


class LinkError(CkPrefillError):
    """The link of a library failed. The message names the library and the symbols or files in question."""

    exit_code = 22


class NotACkTreeError(CkPrefillError):
    """A folder that should hold a Composable Kernel source tree holds something else."""

    exit_code = 23


class UnfitTreeError(CkPrefillError):
    """A Composable Kernel tree whose age no dialect of the matrix describes."""

    exit_code = 24


class ChecksumError(CkPrefillError):
    """A downloaded or cached file whose sha256 is not the pinned one."""

    exit_code = 25


class DownloadError(CkPrefillError):
    """A pinned package that could not be fetched."""

    exit_code = 26
    infrastructure = True


class CodeObjectError(CkPrefillError):
    """A file without readable GPU code: truncated, no fat binary, metadata stripped, or of an unknown arch."""

    exit_code = 28


class LibraryError(CkPrefillError):
    """A built library that can't be loaded, or speaks another version of the C ABI. The message names the file."""

    exit_code = 29


class ParityError(CkPrefillError):
    """The matrix and an upstream disagree: on names, bindings, dispatch or machine code."""

    exit_code = 30


class CodegenError(CkPrefillError):
    """The upstream's generate.py failed. The message holds the command and the end of its stderr."""

    exit_code = 31


class CppTextError(CkPrefillError):
    """Generated C++, upstream's or ours, that the parity check can't follow. The message quotes the place."""

    exit_code = 32


class NotReproducibleError(CkPrefillError):
    """Two builds of the same selection differ in at least one byte; the message lists the artifacts."""

    exit_code = 33


class BenchError(CkPrefillError):
    """A figure could not be measured."""

    exit_code = 34


class RecordError(CkPrefillError):
    """A record (results, counters, a manifest) that is missing, no JSON, or lacks a field. Names file and field."""

    exit_code = 35


class DeviceError(CkPrefillError):
    """A device that was asked for is not there, or can't be started. The message says what is there."""

    exit_code = 36


class HipError(CkPrefillError):
    """A call of the HIP runtime failed; ``error`` is its number."""

    exit_code = 37

    def __init__(self, message: str, error: int) -> None:
        super().__init__(message)
        self.error = error


class MeasureError(CkPrefillError):
    """A problem of the gates could not be measured: no library, none of its kernels serves it, or the launch failed."""

    exit_code = 38


class LibraryMismatchError(CkPrefillError):
    """A library whose bytes are not those that its manifest lists: nobody knows what it is made of."""

    exit_code = 39

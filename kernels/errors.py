"""Failures of building: compilers, source trees, downloads, code objects. Exit codes 20-39, one for each class.

Every message contains what happened, where (command, path, symbol) and what to do about it.
"""

from __future__ import annotations

from matrix.base.errors import CkPrefillError
from matrix.base.errors import DiskFullError as DiskFullError  # code 27: matrix/ writes files, too
from matrix.base.errors import ProcessLimitError as ProcessLimitError
from matrix.base.errors import UntrustedFileError as UntrustedFileError


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

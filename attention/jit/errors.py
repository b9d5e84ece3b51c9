"""Failures of compiling on demand. Exit codes 220-224, one for each class."""

from __future__ import annotations

from ckpm.base.errors import CkPrefillError


class JitCompileError(CkPrefillError):
    """Kernels that could not be compiled. The message names each, the compiler's reason, and the file of the log."""

    exit_code = 220


class JitKilledError(CkPrefillError):
    """A compilation that a signal ended, such as that of a system without memory. Nothing of it is kept as finished."""

    exit_code = 221
    infrastructure = True


class JitRecordError(CkPrefillError):
    """A record of compiling on demand that is missing or damaged. Names file and field."""

    exit_code = 222

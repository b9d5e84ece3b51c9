"""Failures around C++ programs. Exit codes 225-229, one for each class."""

from __future__ import annotations

from ckpm.base.errors import CkPrefillError


class DeclarationError(CkPrefillError):
    """A declared kernel set that can't be read, or that no kernel fits. The message begins with file:line."""

    exit_code = 225


class ProgramError(CkPrefillError):
    """A C++ program that could not be compiled, or that has no main. The message holds the compiler's words."""

    exit_code = 226

"""Failures of workflows. Exit codes 120-129, one for each class."""

from __future__ import annotations

from matrix.base.errors import CkPrefillError, UnknownWordError


class StaleWorkflowError(CkPrefillError):
    """A rendered file that differs from what its template gives: it was edited by hand, or not rendered again."""

    exit_code = 120


class UnknownWorkflowError(UnknownWordError):
    kind, exit_code = "workflow", 121


class WorkflowError(CkPrefillError):
    """A workflow that this runner can't follow: an expression, a function or an action that it does not know."""

    exit_code = 122


class JobsFailedError(CkPrefillError):
    """Jobs of a workflow failed. The message names each with its failing step and the folder with its log."""

    exit_code = 123


class NothingDoneError(CkPrefillError):
    """A planned job that left no library, no case or no comparison behind: that is no success."""

    exit_code = 124

"""Failures of workflows. Exit codes 120 to 129, one for each class."""

from __future__ import annotations

from ckpm.base.errors import CkPrefillError, UnknownWordError


class StaleWorkflowError(CkPrefillError):
    """A rendered file differs from its template: it was edited by hand, or not rendered again."""

    exit_code = 120


class UnknownWorkflowError(UnknownWordError):
    kind, exit_code = "workflow", 121


class WorkflowError(CkPrefillError):
    """A workflow has a value or a matrix that the local runner does not support."""

    exit_code = 122


class JobsFailedError(CkPrefillError):
    """Jobs of a workflow failed. The message names the jobs and the folder of their logs."""

    exit_code = 123


class NothingDoneError(CkPrefillError):
    """A planned job wrote no library, no case or no comparison."""

    exit_code = 124

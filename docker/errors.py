"""Failures of containers. Exit codes 100-109, one for each class.

``PullError`` is of class infrastructure: trying again later may help. A full disk is DiskFullError (27), an image that
differs when built again NotReproducibleError (33).
"""

from __future__ import annotations

from ckpm.base.errors import CkPrefillError, UnknownWordError


class EngineMissingError(CkPrefillError):
    """No container engine works here: none is installed, or its daemon does not run. The message names each."""

    exit_code = 100


class EnginePermissionError(CkPrefillError):
    """An engine is there, and this user may not use it."""

    exit_code = 101


class PullError(CkPrefillError):
    """A base image that no registry or mirror handed over, after several tries each."""

    exit_code = 102
    infrastructure = True


class DigestError(CkPrefillError):
    """The registry has no image of the pinned digest, or sent another one. Trying again would change nothing."""

    exit_code = 103


class ImageBuildError(CkPrefillError):
    """A step of an image's build failed. The message holds the end of what the engine said, and names the log."""

    exit_code = 104


class PackagesDifferError(CkPrefillError):
    """An image with other packages than those recorded in docker/locks."""

    exit_code = 105


class DockerfileLintError(CkPrefillError):
    """hadolint complains about a rendered Dockerfile."""

    exit_code = 106


class UnknownImageError(UnknownWordError):
    kind, exit_code = "image", 107


class RootFilesystemError(CkPrefillError):
    """A base without a registry could not be made: mmdebstrap is missing or failed, or no mirror is known."""

    exit_code = 108


class ContainerStartError(CkPrefillError):
    """The engine could not run a container of an image that it has."""

    exit_code = 109

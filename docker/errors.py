"""Failures of containers. Exit codes 100 to 109, one for each class.

``PullError`` is of class infrastructure: trying again later can help. A full disk is DiskFullError (27). A second build
with another id is NotReproducibleError (33).
"""

from __future__ import annotations

from ckpm.base.errors import CkPrefillError, UnknownWordError


class EngineMissingError(CkPrefillError):
    """No container engine works here: none is installed, or its daemon does not run."""

    exit_code = 100


class EnginePermissionError(CkPrefillError):
    """An engine refuses this user."""

    exit_code = 101


class PullError(CkPrefillError):
    """The registry did not deliver a base image."""

    exit_code = 102
    infrastructure = True


class DigestError(CkPrefillError):
    """The registry has no image of the pinned digest, or sent another image. Trying again does not help."""

    exit_code = 103


class ImageBuildError(CkPrefillError):
    """A step of an image's build failed. The message has the end of the engine's output and the path of the log."""

    exit_code = 104


class PackagesDifferError(CkPrefillError):
    """An image has other packages than those recorded in docker/locks."""

    exit_code = 105


class DockerfileLintError(CkPrefillError):
    """hadolint has findings in a rendered Dockerfile."""

    exit_code = 106


class UnknownImageError(UnknownWordError):
    kind, exit_code = "image", 107


class RootFilesystemError(CkPrefillError):
    """The Debian base could not be made: mmdebstrap is missing or failed, or no mirror is configured."""

    exit_code = 108


class ContainerStartError(CkPrefillError):
    """The engine has the image, but could not run a container of it."""

    exit_code = 109

"""Classify an engine's output after a failure."""

from __future__ import annotations

from ckpm.base.errors import CkPrefillError, CompileError, DiskFullError, SetupError, TrustError

_SHOWN_LINES = 15
_SHOWN_CHARACTERS = 400  # of a line: buildah writes thousands with the cause at the end
_DISK = ("no space left on device", "disk quota exceeded", "you don't have enough free space")
_PERMISSION = (
    "permission denied while trying to connect",  # docker's socket
    "connect: permission denied",
    "oci permission denied",
    "potentially insufficient uids or gids",
    "newuidmap",
    "error setting ownership of",  # a rootless engine has no ids for the users in an image
)
PERMISSION_REMEDY = (
    "Join the engine's group, or take another engine with --engine; a rootless one needs ids for the user in "
    "/etc/subuid and /etc/subgid, and a home folder that it can write to."
)
_NO_DAEMON = ("cannot connect to the docker daemon", "is the docker daemon running", "cannot connect to podman")
# The registry has no such digest, or sent content with another digest.
_DIGEST = (
    "manifest unknown",
    "manifest for",
    "not found: manifest",
    "digest did not match",
    "does not match digest",
    "does not match provided manifest digest",
    "does not match expected sha256",
    "failed digest verification",
    "unexpected commit digest",
    "invalid checksum digest",
)


# The engine's configuration has to change first: no registry for a short name, a login, a certificate.
_CONFIGURATION = (
    "short-name",
    "invalid reference format",
    "unauthorized",
    "access denied",
    "requested access to the resource is denied",
    "certificate signed by unknown authority",
    "server gave http response to https client",
)
REGISTRY = "CKPM_REGISTRY"


def of_engine(output: str) -> CkPrefillError | None:
    """The error of a full disk, a missing permission or a missing daemon; None for any other output."""
    text = output.lower()
    if any(word in text for word in _DISK):
        return DiskFullError(
            f"the engine's storage is full: {last_lines(output, 1)}. Free some: `buildah rmi --prune`, "
            "`podman system prune` or `docker system prune`."
        )
    if any(word in text for word in _PERMISSION):
        return SetupError(
            f"this user lacks the permission: {last_lines(output, 1)}. {PERMISSION_REMEDY}", kind="engine-permission"
        )
    if any(word in text for word in _NO_DAEMON):
        return SetupError(f"the engine's daemon has ended: {last_lines(output, 1)}. Start it.", kind="engine")
    return None


def of_pull(output: str, reference: str) -> CkPrefillError | None:
    """The error of a pull if trying again can't help, else None."""
    if error := of_engine(output):
        return error
    if any(word in output.lower() for word in _DIGEST):
        return TrustError(
            f"{reference}: the registry has no image of this digest, or sent another image: "
            f"{last_lines(output, 1)}. Correct the digest in docker/images.yaml.",
            kind="digest",
        )
    if any(word in output.lower() for word in _CONFIGURATION):
        return SetupError(
            f"the engine is not set up for {reference}: {last_lines(output, 1)}. Name the registry of the image: "
            f"{REGISTRY}=HOST[/PATH]; or configure one: registries.conf with unqualified-search-registries for podman "
            "and buildah; log in to it and trust its certificate if it asks for that.",
            kind="registry",
        )
    return None


def of_build(output: str, image: str, log: str) -> CkPrefillError:
    """The error of a failed build."""
    return of_engine(output) or CompileError(
        f"{image} was not built. The output is in {log}:\n{last_lines(output)}", kind="image"
    )


def last_lines(output: str, lines: int = _SHOWN_LINES) -> str:
    """The end of each of the last lines that are not empty."""
    full = [line.strip() for line in output.splitlines() if line.strip()][-lines:]
    return "\n".join(line if len(line) <= _SHOWN_CHARACTERS else f"...{line[-_SHOWN_CHARACTERS:]}" for line in full)

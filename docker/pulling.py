"""Pulling base images: tries with growing pauses, then mirrors, then a failure of class infrastructure."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence

from ckpm.docker.engines import Engine, identity_command, pull_command
from ckpm.docker.errors import PullError
from ckpm.docker.failures import is_final, of_pull
from ckpm.docker.images import Base
from ckpm.docker.running import call

MIRRORS = "CKPM_REGISTRY_MIRRORS"  # registries that serve the same repositories, with commas between
_TRIES = 4
_FIRST_PAUSE = 2.0  # seconds; each further one is twice as long

Say = Callable[[str], None]


def places(base: Base) -> list[str]:
    """References of a base by its digest alone, in the order in which they are tried.

    The first names no registry: the engine takes the one that it is configured for.
    """
    repository = base.reference.partition(":")[0]
    mirrors = [mirror.strip().rstrip("/") for mirror in os.environ.get(MIRRORS, "").split(",") if mirror.strip()]
    return [f"{repository}@{base.digest}", *(f"{mirror}/{repository}@{base.digest}" for mirror in mirrors)]


def pull(engine: Engine, base: Base, *, say: Say = print, sleep: Callable[[float], None] = time.sleep) -> str:
    """Get a base image; the reference under which the engine has it.

    Raises:
        DigestError: there is no image of this digest. Nothing is tried again.
        PullError: every place failed every time.
        EngineMissingError, EnginePermissionError, DiskFullError: the engine can't.
    """
    wanted = places(base)
    for reference in wanted:
        if _run(identity_command(engine, reference)) is None:
            return reference  # it is there
    complaints = []
    for reference in wanted:
        complaint = _try(engine, reference, say, sleep)
        if complaint is None:
            return reference
        complaints.append(f"{reference}: {complaint}")
    listed = "\n".join(complaints)
    raise PullError(
        f"infrastructure: base image {base.name} could not be pulled:\n{listed}\nTry later, or name registries that "
        f"mirror it in {MIRRORS}. podman and buildah ask the unqualified-search-registries of registries.conf first."
    )


def _try(engine: Engine, reference: str, say: Say, sleep: Callable[[float], None]) -> str | None:
    """Pull from one place; None, or its last complaint. Raises what no other try or place can mend."""
    pause, complaint = _FIRST_PAUSE, ""
    for number in range(1, _TRIES + 1):
        said = _run(pull_command(engine, reference))
        if said is None:
            return None
        if error := of_pull(said, reference):
            raise error
        complaint = said.strip().splitlines()[-1] if said.strip() else "no reason given"
        if is_final(said):
            return complaint
        if number < _TRIES:
            say(f"{reference}: {complaint}; again in {pause:.0f} s")
            sleep(pause)
            pause *= 2
    return f"{complaint} ({_TRIES} times)"


def _run(command: Sequence[str]) -> str | None:
    """None if the command succeeds, else what it said."""
    done = call(command, output=subprocess.PIPE)
    return None if done.returncode == 0 else done.stderr + done.stdout

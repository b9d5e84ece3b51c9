"""Container engines: which one works here, and its command lines. docker, podman and buildah are known.

A client alone is no engine: docker needs its daemon, so each is asked something that only a working one answers.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ckpm.base.errors import UsageError
from ckpm.docker.errors import EngineMissingError, EnginePermissionError
from ckpm.docker.failures import PERMISSION_REMEDY

NAMES = ("docker", "podman", "buildah")
CHOICES = ("auto", *NAMES)
_SECONDS = 60  # a daemon that takes longer to say its version does not work
_QUESTIONS: Mapping[str, tuple[str, ...]] = {
    "docker": ("info", "--format", "{{.ServerVersion}} {{.SecurityOptions}}"),
    "podman": ("info", "--format", "{{.Version.Version}} {{if .Host.Security.Rootless}}rootless{{end}}"),
    "buildah": ("info", "--format", "{{.host.rootless}}"),
}
_PERMISSION = ("permission denied", "operation not permitted", "insufficient uids", "newuidmap", "must be root")


@dataclass(frozen=True, slots=True)
class Engine:
    """``rootless``: root inside is the caller outside."""

    name: str
    program: str
    rootless: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A folder or file of this machine, at the same or another path inside."""

    source: Path
    target: Path
    writable: bool = False

    def __str__(self) -> str:
        return f"{self.source}:{self.target}:{'rw' if self.writable else 'ro'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One build. ``secrets`` are files that RUN steps see in /run/secrets; ``arguments`` values of the file's ARGs."""

    context: Path
    tag: str
    epoch: int
    arguments: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, Path] = field(default_factory=dict)
    cached: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One command in a new container, which is gone afterwards. ``user`` is UID:GID; ``groups`` are ids."""

    image: str
    command: Sequence[str]
    user: str = ""
    workdir: Path | None = None
    mounts: Sequence[Mount] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    devices: Sequence[str] = ()
    groups: Sequence[int] = ()
    shm_size: str = ""


def detect(choice: str = "auto") -> Engine:
    """The engine named ``choice``; ``auto`` takes the first that works of docker, podman, buildah.

    Raises:
        UsageError: a choice that doesn't exist.
        EnginePermissionError: it is there, but not for this user, and no other works.
        EngineMissingError: none works; the message says what is the matter with each.
    """
    if choice not in CHOICES:
        raise UsageError(f"unknown engine '{choice}'. Known: {', '.join(CHOICES)}.")
    reasons, forbidden = [], False
    for name in NAMES if choice == "auto" else (choice,):
        program = shutil.which(name)
        if program is None:
            reasons.append(f"{name}: not installed")
            continue
        answer, said = _ask(program, _QUESTIONS[name])
        if answer is not None:
            return Engine(name, program, rootless="rootless" in answer or answer == "true")
        reasons.append(f"{name}: {said}")
        forbidden = forbidden or any(word in said.lower() for word in _PERMISSION)
    if forbidden:
        listed = "; ".join(reasons)
        raise EnginePermissionError(f"this user may use no container engine ({listed}). {PERMISSION_REMEDY}")
    raise EngineMissingError(
        f"no container engine works here ({'; '.join(reasons)}). Install one, on Debian: apt-get install buildah "
        "podman runc; or start docker's daemon."
    )


def _ask(program: str, question: Sequence[str]) -> tuple[str | None, str]:
    """What a working engine answers, else None and why."""
    try:
        run = subprocess.run(
            [program, *question], capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return None, f"no answer within {_SECONDS} seconds"
    except OSError as error:
        return None, error.strerror or str(error)
    answer = run.stdout.strip()
    said = run.stderr.strip().splitlines()
    # docker's client ends with 0 and an empty version if there is no daemon
    if run.returncode == 0 and answer and not answer.startswith("[]"):
        return answer, ""
    return None, said[-1] if said else f"ended with {run.returncode}"


def build_command(engine: Engine, build: Build) -> list[str]:
    """Build an image from the Dockerfile in the context, every time stamp in it ``epoch``."""
    words = [engine.program, "build", "--tag", build.tag]
    if engine.name == "docker":
        words += ["--output", "type=docker,rewrite-timestamp=true", "--provenance=false"]
    else:
        # The layers and the image id of this format depend on nothing but content. It has no field for a
        # healthcheck; docker's has, and the container's random name beside it.
        words += ["--isolation", "chroot", "--format", "oci", "--layers", "--timestamp", str(build.epoch)]
    arguments = {"SOURCE_DATE_EPOCH": str(build.epoch), **build.arguments}
    words += [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
    words += [word for name, file in build.secrets.items() for word in ("--secret", f"id={name},src={file}")]
    return [*words, *([] if build.cached else ["--no-cache"]), str(build.context)]


def pull_command(engine: Engine, reference: str) -> list[str]:
    return [engine.program, "pull", reference]


def identity_command(engine: Engine, tag: str) -> list[str]:
    """Prints the image id of a tag; fails if there is no such image."""
    if engine.name == "buildah":
        return [engine.program, "inspect", "--type", "image", "--format", "{{.FromImageID}}", tag]
    return [engine.program, "image", "inspect", "--format", "{{.Id}}", tag]


def run_commands(engine: Engine, run: Run, name: str) -> tuple[list[list[str]], list[str]]:
    """The commands of a run, the last one the user's, and the command that cleans up. ``name`` is the container's."""
    if engine.name == "buildah":
        return _buildah_run(engine, run, name)
    # the client ends when it is told to, and not when the command in the container heeds its signal
    words = [engine.program, "run", "--rm", "--name", name, "--sig-proxy=false", "--stop-timeout", "0"]
    words += ["--network", "host"]
    if engine.name == "podman":
        # its default limits may be above what this machine lets it set
        words += [word for limit in _limits() for word in ("--ulimit", limit)]
        words += ["--userns", "keep-id"] if engine.rootless else []
    words += ["--user", "0:0" if engine.name == "docker" and engine.rootless else run.user] if run.user else []
    words += [word for device in run.devices for word in ("--device", device)]
    if engine.name == "podman" and engine.rootless and run.groups:
        words += ["--group-add", "keep-groups"]
    else:
        words += [word for group in run.groups for word in ("--group-add", str(group))]
    words += ["--shm-size", run.shm_size] if run.shm_size else []
    words += _shared_words(run)
    words += ["--workdir", str(run.workdir)] if run.workdir else []
    return [[*words, run.image, *run.command]], [engine.program, "rm", "--force", name]


def _buildah_run(engine: Engine, run: Run, name: str) -> tuple[list[list[str]], list[str]]:
    start = [engine.program, "from", "--pull=never", "--name", name]
    start += ["--shm-size", run.shm_size] if run.shm_size else []
    words = [engine.program, "run", "--isolation", "chroot"]
    words += ["--user", "0:0" if engine.rootless else run.user] if run.user else []
    # in a chroot a device is a file like another
    words += [word for device in run.devices for word in ("--volume", f"{device}:{device}")]
    words += _shared_words(run)
    words += ["--workingdir", str(run.workdir)] if run.workdir else []
    return [[*start, run.image], [*words, name, "--", *run.command]], [engine.program, "rm", name]


def _shared_words(run: Run) -> list[str]:
    words = [word for mount in run.mounts for word in ("--volume", str(mount))]
    return words + [word for name, value in run.environment.items() for word in ("--env", f"{name}={value}")]


def _limits() -> list[str]:
    """Limits of open files and processes: enough for compilers, and never above this process's own."""
    limits = []
    for name, number, enough in (("nofile", resource.RLIMIT_NOFILE, 4096), ("nproc", resource.RLIMIT_NPROC, 16384)):
        hard = resource.getrlimit(number)[1]
        limit = enough if hard == resource.RLIM_INFINITY else min(hard, enough)
        limits.append(f"{name}={limit}:{limit}")
    return limits


def device_groups(devices: Sequence[str]) -> tuple[int, ...]:
    """Ids of the groups that own device nodes, those in a folder such as /dev/dri included."""
    nodes = [Path(device) for device in devices]
    nodes += [child for node in nodes if node.is_dir() for child in sorted(node.iterdir())]
    return tuple(sorted({node.stat().st_gid for node in nodes if not node.is_dir()}))


def present(devices: Sequence[str]) -> tuple[str, ...]:
    """All of the devices, or none if one of them is missing."""
    return tuple(devices) if devices and all(os.path.exists(device) for device in devices) else ()  # noqa: PTH110

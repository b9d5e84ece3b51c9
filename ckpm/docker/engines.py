"""Find the container engine that works here (docker, podman, buildah), and build its command lines.

An installed client is not enough, because docker needs its daemon. The choice follows from a query that only a working
engine answers.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ckpm.base.errors import SetupError, UsageError
from ckpm.docker.failures import PERMISSION_REMEDY

_SECONDS = 60  # a daemon that takes longer to report its version does not work
_QUERIES: Mapping[str, tuple[str, ...]] = {
    "docker": ("info", "--format", "{{.ServerVersion}} {{.SecurityOptions}}"),
    "podman": ("info", "--format", "{{.Version.Version}} {{if .Host.Security.Rootless}}rootless{{end}}"),
    "buildah": ("info", "--format", "{{.host.rootless}}"),
}
CHOICES = ("auto", *_QUERIES)
_PERMISSION = ("permission denied", "operation not permitted", "insufficient uids", "newuidmap", "must be root")


@dataclass(frozen=True, slots=True)
class Engine:
    """A container engine. ``rootless``: root in a container is the caller outside."""

    name: str
    program: str
    rootless: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A folder or file of this machine, and its path in the container.

    ``own`` ones get a label of SELinux by which every container may use them (z). The system's files keep theirs: other
    programs need it.
    """

    source: Path
    target: Path
    writable: bool = False
    own: bool = False

    def __str__(self) -> str:
        """The value of ``--volume``. Raises UsageError: it can't contain the path."""
        if unfit := [path for path in (self.source, self.target) if ":" in str(path)]:
            raise UsageError(
                f"{unfit[0]}: a folder with ':' in its name can't be mounted in a container. Move it, or name another "
                "one (the clone's folder, CKPM_CACHE, CK_ROOT, files of pip's settings)."
            )
        return f"{self.source}:{self.target}:{'rw' if self.writable else 'ro'}{',z' if self.own else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageBuild:
    """One build. ``secrets`` are mounted in /run/secrets of RUN steps; ``arguments`` are values of ARGs."""

    context: Path
    tag: str
    epoch: int
    arguments: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, Path] = field(default_factory=dict)
    cached: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRun:
    """One command in a new container, which is removed afterwards. ``user`` is UID:GID; ``groups`` are ids."""

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
    """The engine named ``choice``; ``auto`` takes the first that works of docker, podman, buildah."""
    reasons, forbidden = [], False
    for name in tuple(_QUERIES) if choice == "auto" else (choice,):
        program = shutil.which(name)
        if program is None:
            reasons.append(f"{name}: not installed")
            continue
        answer, reason = _query(program, _QUERIES[name])
        if answer is not None:
            return Engine(name, program, rootless="rootless" in answer or answer == "true")
        reasons.append(f"{name}: {reason}")
        forbidden = forbidden or any(word in reason.lower() for word in _PERMISSION)
    if forbidden:
        listed = "; ".join(reasons)
        raise SetupError(
            f"this user may use no container engine ({listed}). {PERMISSION_REMEDY}", kind="engine-permission"
        )
    raise SetupError(
        f"no container engine works here ({'; '.join(reasons)}). Install one, on Debian: apt-get install buildah "
        "podman runc; or start docker's daemon.",
        kind="engine",
    )


def _query(program: str, arguments: Sequence[str]) -> tuple[str | None, str]:
    """The answer of a working engine, else None and the reason."""
    try:
        run = subprocess.run(
            [program, *arguments], capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return None, f"no answer within {_SECONDS} seconds"
    except OSError as error:
        return None, error.strerror or str(error)
    answer = run.stdout.strip()
    errors = run.stderr.strip().splitlines()
    # docker's client ends with 0 and an empty version without a daemon
    if run.returncode == 0 and answer and not answer.startswith("[]"):
        return answer, ""
    return None, errors[-1] if errors else f"ended with {run.returncode}"


def build_command(engine: Engine, build: ImageBuild) -> list[str]:
    """The command that builds an image with ``epoch`` as every time stamp in it.

    As root, buildah and podman mount layers in the namespace of all processes. A mount namespace of the build's own
    ends with its processes, also if it is killed.
    """
    rootful = engine.name != "docker" and os.geteuid() == 0
    private = ["unshare", "--mount", "--propagation", "private"] if rootful else []
    command = [*private, engine.program, "build", "--tag", build.tag]
    if engine.name == "docker":
        command += ["--output", "type=docker,rewrite-timestamp=true", "--provenance=false"]
    else:
        # In this format the image id depends on content alone. Docker's format has a field for a healthcheck, but
        # also the container's random name.
        command += ["--isolation", "chroot", "--format", "oci", "--layers", "--timestamp", str(build.epoch)]
    arguments = {"SOURCE_DATE_EPOCH": str(build.epoch), **build.arguments}
    command += [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
    command += [word for name, file in build.secrets.items() for word in ("--secret", f"id={name},src={file}")]
    return [*command, *([] if build.cached else ["--no-cache"]), str(build.context)]


def identity_command(engine: Engine, tag: str) -> list[str]:
    """The command that prints the image id of a tag, and fails if the image is missing."""
    if engine.name == "buildah":
        return [engine.program, "inspect", "--type", "image", "--format", "{{.FromImageID}}", tag]
    return [engine.program, "image", "inspect", "--format", "{{.Id}}", tag]


def run_commands(engine: Engine, run: ContainerRun, name: str) -> tuple[list[list[str]], list[str]]:
    """The commands of a run, of which the last is the user's, and the command that removes the container ``name``."""
    if engine.name == "buildah":
        return _buildah_run(engine, run, name)
    # a signal ends the client at once, also if the command in the container ignores it
    command = [engine.program, "run", "--rm", "--name", name, "--sig-proxy=false", "--stop-timeout", "0"]
    command += ["--network", "host"]
    if engine.name == "podman":
        # its default limits can be higher than this machine allows
        command += [word for limit in _limits() for word in ("--ulimit", limit)]
        command += ["--userns", "keep-id"] if engine.rootless else []
    command += ["--user", "0:0" if engine.name == "docker" and engine.rootless else run.user] if run.user else []
    command += [word for device in run.devices for word in ("--device", device)]
    if engine.name == "podman" and engine.rootless and run.groups:
        command += ["--group-add", "keep-groups"]
    else:
        command += [word for group in run.groups for word in ("--group-add", str(group))]
    command += ["--shm-size", run.shm_size] if run.shm_size else []
    command += _shared_options(run)
    command += ["--workdir", str(run.workdir)] if run.workdir else []
    return [[*command, run.image, *run.command]], [engine.program, "rm", "--force", name]


def _buildah_run(engine: Engine, run: ContainerRun, name: str) -> tuple[list[list[str]], list[str]]:
    start = [engine.program, "from", "--pull=never", "--name", name]
    start += ["--shm-size", run.shm_size] if run.shm_size else []
    command = [engine.program, "run", "--isolation", "chroot"]
    command += ["--user", "0:0" if engine.rootless else run.user] if run.user else []
    # in a chroot a device is an ordinary file
    command += [word for device in run.devices for word in ("--volume", f"{device}:{device}")]
    command += _shared_options(run)
    command += ["--workingdir", str(run.workdir)] if run.workdir else []
    return [[*start, run.image], [*command, name, "--", *run.command]], [engine.program, "rm", name]


def _shared_options(run: ContainerRun) -> list[str]:
    options = [word for mount in run.mounts for word in ("--volume", str(mount))]
    return options + [word for name, value in run.environment.items() for word in ("--env", f"{name}={value}")]


def _limits() -> list[str]:
    """Limits of open files and processes: enough for compilers, at most this process's limits."""
    limits = []
    for name, number, enough in (("nofile", resource.RLIMIT_NOFILE, 4096), ("nproc", resource.RLIMIT_NPROC, 16384)):
        hard = resource.getrlimit(number)[1]
        limit = enough if hard == resource.RLIM_INFINITY else min(hard, enough)
        limits.append(f"{name}={limit}:{limit}")
    return limits


def device_groups(devices: Sequence[str]) -> tuple[int, ...]:
    """Ids of the groups that own device nodes, including nodes in a folder such as /dev/dri."""
    nodes = [Path(device) for device in devices]
    nodes += [child for node in nodes if node.is_dir() for child in sorted(node.iterdir())]
    return tuple(sorted({node.stat().st_gid for node in nodes if not node.is_dir()}))


def present(devices: Sequence[str]) -> tuple[str, ...]:
    """All devices, or none if one is missing."""
    return tuple(devices) if devices and all(os.path.exists(device) for device in devices) else ()  # noqa: PTH110

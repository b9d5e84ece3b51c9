"""Run nox sessions inside an image: ``ckpm in-container``.

The checkout and the cache folder have the same paths in the container, so that every path in a result is valid outside.
Files belong to the caller. The container gets the settings of pip and git, and the GPU if there is one. It also gets
the caller's choices for runs: GPU, CKPM_V3, CKPM_JOBS, CKPM_ROCM. Images with ROCm set CKPM_ROCM to 1.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ckpm.base import rocm_places, settings
from ckpm.base.display import show
from ckpm.base.entry import FAILURES
from ckpm.base.errors import UsageError
from ckpm.base.files import make_folder
from ckpm.base.paths import INSTALLED, PROJECT
from ckpm.base.processes import python_command, tool_environment
from ckpm.base.rocm_choice import VARIABLE
from ckpm.docker import building, context, running
from ckpm.docker.command import DEFAULT_WORK
from ckpm.docker.context import ImageSources, labels
from ckpm.docker.engines import CHOICES, ContainerRun, Mount, detect, device_groups, present
from ckpm.docker.images import Image, image
from ckpm.docker.rootfs import write_private
from ckpm.kernels.abi import V3_SWITCH

DEFAULT_IMAGE = "debian-rocm-test"
_PACKAGES = "/opt/ckpm/packages"  # CK's package in the image
_PIP_CONF = Path("/run/ckpm/pip.conf")
_ENVIRONMENTS = Path("/run/ckpm/sessions")  # short: nox warns of environments whose path has more than 87 characters
_PIP_FILES = ("cert", "client-cert", "constraint", "find-links", "index-url", "extra-index-url")  # may name files
_CERTIFICATES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO")
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")
_CHOICES = (VARIABLE, *rocm_places.VISIBLE, V3_SWITCH, "CKPM_JOBS", "SOURCE_DATE_EPOCH")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sessions", nargs="+", metavar="SESSION", help="names of nox sessions")
    parser.add_argument("--options", default="", metavar="TEXT", help="options of the sessions, as one word")
    parser.add_argument("--image", default=DEFAULT_IMAGE, metavar="NAME", help="default: %(default)s")
    parser.add_argument("--engine", choices=CHOICES, default="auto", help="default: the first that works")
    parser.add_argument("--work", type=Path, default=DEFAULT_WORK, help="folder of image builds (default: %(default)s)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the sessions of a clone and return the exit code of nox."""
    if INSTALLED:
        raise UsageError("in-container runs the sessions of a clone's noxfile.py: run it in a clone.")
    from ckpm.kernels.upstream.package_index import pip_settings  # here: other commands need no HTTP client

    chosen = image(args.image)
    arguments = [*args.sessions, *_options(args.options)]
    demand_sessions(args.sessions)
    engine = detect(args.engine)
    sources = ImageSources(settings.cache_folder(), labels())
    with tempfile.TemporaryDirectory() as private:
        conf = Path(private) / "pip.conf"
        pip = pip_settings()
        write_private(conf, pip_conf(pip, _PACKAGES if chosen.ck else ""))
        order = plan(chosen, context.tag(chosen), arguments, conf=conf, pip=pip, cache=sources.cache)
        make_folder(Path(order.environment["HOME"]))
        building.ensure(engine, chosen, args.work, sources)  # takes minutes, so mistakes are reported first
        show(f"{' '.join(args.sessions)} in {chosen.name} with {engine.name}", flush=True)
        return running.run(engine, order).returncode


def demand_sessions(names: Sequence[str]) -> None:
    """Refuse sessions that nox doesn't list. Without nox on this machine, nox in the container checks the names."""
    listing = python_command("-m", "nox", "--noxfile", str(PROJECT / "noxfile.py"), "--list", "--session", *names)
    done = subprocess.run(
        listing, env=tool_environment(), capture_output=True, text=True, errors="replace", check=False
    )
    _, separator, unknown = done.stderr.partition("Sessions not found: ")
    if separator:
        raise UsageError(f"noxfile.py has no session {unknown.strip()}. `nox -l` lists the sessions.")


def _options(text: str) -> list[str]:
    """The arguments in --options, split as a shell does."""
    try:
        arguments = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--options {text!r}: no shell can read it: {error}.") from error
    return ["--", *arguments] if arguments else []


def plan(
    chosen: Image,
    tag: str,
    arguments: Sequence[str],
    *,
    conf: Path,
    pip: Mapping[str, str],
    cache: Path,
    root: Path = PROJECT,
) -> ContainerRun:
    """The container's command, mounts, environment and devices. ``arguments`` are nox's, after --session."""
    folder = cache / "containers" / "sessions" / tag.rpartition("/")[2].replace(":", "-")
    files = {*_pip_paths(pip), *(Path(path).absolute() for name in _CERTIFICATES if (path := os.environ.get(name)))}
    mounts = [
        Mount(source=root, target=root, writable=True, own=True),
        Mount(source=cache, target=cache, writable=True, own=True),
        Mount(source=folder, target=_ENVIRONMENTS, writable=True, own=True),
        Mount(source=conf, target=_PIP_CONF, own=True),
        *(_readable(path) for path in sorted(files) if path.exists()),
    ]
    if repository := repository_of(root):
        mounts.append(Mount(source=repository, target=repository, writable=True, own=True))
    record = Path(os.environ.get(FAILURES, "")).absolute()
    if record.is_file():
        mounts.append(Mount(source=record, target=record, writable=True, own=True))
    checkout = settings.ck_root()
    if checkout and checkout.is_dir():
        mounts.append(_readable(checkout))
    passed = {name: os.environ[name] for name in (*_PROXIES, *_CERTIFICATES, *_CHOICES) if name in os.environ}
    devices = present(chosen.purpose.devices)
    return ContainerRun(
        image=tag,
        command=["sh", "docker/sessions.sh", str(_ENVIRONMENTS), *arguments],
        user=f"{os.getuid()}:{os.getgid()}",
        workdir=root,
        mounts=mounts,
        environment={
            **passed,
            **({"CK_ROOT": str(checkout)} if checkout else {}),
            **({FAILURES: str(record)} if record.is_file() else {}),
            "HOME": str(folder / "home"),  # this user has no home in the image
            "CKPM_CACHE": str(cache),
            "PIP_CONFIG_FILE": str(_PIP_CONF),
        },
        devices=devices,
        groups=device_groups(devices),
        shm_size=chosen.purpose.shm_size if devices else "",
    )


def _readable(path: Path) -> Mount:
    """The mount of a file or folder that only a user's own label of SELinux may change."""
    return Mount(source=path, target=path, own=path.stat().st_uid == os.getuid() != 0)


def repository_of(root: Path) -> Path | None:
    """The git folder outside of ``root`` that a work tree's or submodule's .git file names; None for a clone."""
    file = root / ".git"
    if not file.is_file():
        return None
    own = root / file.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
    shared = own / "commondir"
    folder = own / shared.read_text(encoding="utf-8").strip() if shared.is_file() else own
    return Path(os.path.normpath(folder))  # not resolved: git follows the path as it is written


def pip_conf(pip: Mapping[str, str], packages: str) -> str:
    """The settings of this machine's pip in one file. find-links also has the image's folder of packages."""
    merged = dict(pip)
    if packages:
        merged["find-links"] = f"{merged.get('find-links', '')} {packages}".strip()
    return "[global]\n" + "".join(f"{name} = {_indent(value)}\n" for name, value in merged.items())


def _indent(value: str) -> str:
    return value.replace("\n", "\n    ")


def _pip_paths(pip: Mapping[str, str]) -> Iterator[Path]:
    """Files and folders of this machine in pip's settings, also those of file:// URLs."""
    for name in _PIP_FILES:
        for word in pip.get(name, "").split():
            parts = urlsplit(word)
            path = unquote(parts.path) if parts.scheme == "file" else word
            if path.startswith("/"):
                yield _folder_of_index(Path(path)) if parts.scheme == "file" else Path(path)


def _folder_of_index(path: Path) -> Path:
    """The folder of a file:// index with its pages and the files that they link to."""
    return path.parent if path.name == "simple" else path

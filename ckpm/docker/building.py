"""Build images, check that a second build without a cache has the same id, and compare packages with lock files."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.errors import CheckFailedError, ServiceError
from ckpm.base.files import hold_lock, name_write_errors, write_atomically
from ckpm.docker import context, rootfs
from ckpm.docker.context import ImageSources
from ckpm.docker.engines import ContainerRun, Engine, ImageBuild, build_command, identity_command
from ckpm.docker.failures import REGISTRY, last_lines, of_build, of_pull
from ckpm.docker.images import FOLDER, Base, Image
from ckpm.docker.running import call, run

LOCKS = FOLDER / "locks"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltImage:
    """A built image: ``identity`` is the image id, ``packages`` the version of each Debian package."""

    image: str
    tag: str
    identity: str
    packages: Mapping[str, str]


def identity(engine: Engine, name: str) -> str | None:
    """The image id of a tag or reference, None if the engine has no such image."""
    done = call(identity_command(engine, name), output=subprocess.PIPE)
    return done.stdout.strip().removeprefix("sha256:") if done.returncode == 0 and done.stdout.strip() else None


def build(engine: Engine, image: Image, work: Path, sources: ImageSources, *, again: bool = False) -> BuiltImage:
    """Build an image below ``work``/NAME. ``again`` builds without caches under another tag, for comparison."""
    folder = work / image.name
    context.fill(image, folder / "context", sources, again=again)
    arguments = {} if image.is_local else {"BASE": pull(engine, image.base)}
    tag = context.tag(image) + ("-again" if again else "")
    log = folder / ("again.log" if again else "build.log")
    with tempfile.TemporaryDirectory() as private:
        order = ImageBuild(
            context=folder / "context",
            tag=tag,
            epoch=image.base.epoch,
            arguments=arguments,
            secrets=rootfs.secrets(image.base, Path(private)),
            cached=not again,
        )
        with name_write_errors(log), log.open("w", encoding="utf-8") as stream:
            done = call(build_command(engine, order), output=stream)
    if done.returncode:
        raise of_build(log.read_text(encoding="utf-8", errors="replace"), image.name, str(log))
    return BuiltImage(image=image.name, tag=tag, identity=identity(engine, tag) or "", packages=packages(engine, tag))


def pull(engine: Engine, base: Base) -> str:
    """Get a base image by its digest and return its reference. The engine's own configuration has retries and mirrors.

    The table names no registry: CKPM_REGISTRY does, or else the engine's configuration.
    """
    registry = os.environ.get(REGISTRY, "").rstrip("/")
    reference = f"{f'{registry}/' if registry else ''}{base.reference.partition(':')[0]}@{base.digest}"
    if identity(engine, reference) is None:
        done = call([engine.program, "pull", reference], output=subprocess.PIPE)
        if done.returncode:
            engine_output = done.stderr + done.stdout
            raise of_pull(engine_output, reference) or ServiceError(
                f"infrastructure: base image {base.name} could not be pulled: {last_lines(engine_output, 1)}. Try "
                f"again later, or name another registry with {REGISTRY}=HOST[/PATH].",
                kind="pull",
            )
    return reference


def ensure(engine: Engine, image: Image, work: Path, sources: ImageSources) -> str:
    """Return the tag of an image, and build the image if the engine has none of the same content."""
    tag = context.tag(image)
    with image_lock(image, sources):
        if identity(engine, tag) is None:
            log.info(f"building image {image.name} with {engine.name}")
            build(engine, image, work, sources)
    return tag


def image_lock(image: Image, sources: ImageSources) -> AbstractContextManager[None]:
    """Hold an image's folder and tags; other processes wait. Those of another clone build the same tags."""
    return hold_lock(sources.containers / f"{image.name}.lock", "set CKPM_CACHE to another folder")


def prove(engine: Engine, image: Image, first: BuiltImage, work: Path, sources: ImageSources) -> None:
    """Build a second time without caches, and check that the image id is the same."""
    second = build(engine, image, work, sources, again=True)
    call([engine.program, "rmi", second.tag], output=subprocess.PIPE)
    with name_write_errors(work):
        shutil.rmtree(work / image.name / "context")  # it holds the only copy of the second root file system
    if second.identity == first.identity:
        return
    differing = differences(first.packages, second.packages)
    why = (
        f"packages differ: {', '.join(differing)}"
        if differing
        else "no package of the first build differs: compare the layers"
    )
    raise CheckFailedError(
        f"image {image.name}: the second build is {second.identity}, the first {first.identity}; {why}. If the mirror "
        "changed in between, build again.",
        kind="not-reproducible",
    )


def packages(engine: Engine, tag: str) -> dict[str, str]:
    """The version of each Debian package in an image."""
    query = ["dpkg-query", "--show", "--showformat", "${Package} ${Version}\\n"]
    listing = output(engine, ContainerRun(image=tag, command=query, user="0:0"))
    return dict(line.split(" ", 1) for line in listing.splitlines() if " " in line)


def output(engine: Engine, order: ContainerRun) -> str:
    """Run a command in a new container and return its output."""
    done = run(engine, order, output=subprocess.PIPE)
    if done.returncode:
        raise of_build(done.stderr or done.stdout, f"{order.image}: '{' '.join(order.command)}'", "no log")
    return done.stdout


def lock_file(base: Base, locks: Path = LOCKS) -> Path:
    return locks / f"{base.name}.txt"


def differences(recorded: Mapping[str, str], installed: Mapping[str, str]) -> list[str]:
    """``name recorded -> installed`` of each package whose installed version differs from the recorded one."""
    return [
        f"{name} {recorded.get(name, 'none')} -> {version}"
        for name, version in sorted(installed.items())
        if recorded.get(name) != version
    ]


def read_lock(base: Base, locks: Path = LOCKS) -> dict[str, str]:
    """The recorded version of each package of a base's images."""
    file = lock_file(base, locks)
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))


def check_lock(base: Base, built: BuiltImage, locks: Path = LOCKS) -> None:
    """Compare an image with the record of its base. Raises CheckFailedError."""
    if differing := differences(read_lock(base, locks), built.packages):
        raise CheckFailedError(
            f"image {built.image}: {len(differing)} packages differ: "
            f"{', '.join(differing[:5])}{', ...' if len(differing) > 5 else ''}. Build from a mirror of that day, or "
            "record these packages with --update-locks.",
            kind="packages",
        )


def write_lock(base: Base, images: Sequence[BuiltImage], locks: Path = LOCKS) -> None:
    """Record the packages of all images of a base in one file."""
    together = {name: version for built in images for name, version in built.packages.items()}
    day = time.strftime("%Y-%m-%d", time.gmtime(base.epoch))
    head = f"# Packages of images on {base.name}, {day}: `nox -s docker -- --update-locks` writes this file.\n"
    body = "".join(f"{name} {version}\n" for name, version in sorted(together.items()))
    write_atomically(lock_file(base, locks), (head + body).encode())

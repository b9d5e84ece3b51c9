"""Building images: once, a second time without any cache to compare the image ids, and against recorded packages."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.errors import NotReproducibleError
from ckpm.base.files import locked, make_folder, write_atomically, writing
from ckpm.docker import context, rootfs
from ckpm.docker.context import Sources
from ckpm.docker.engines import Build, Engine, Run, build_command, identity_command
from ckpm.docker.errors import PackagesDifferError
from ckpm.docker.failures import of_build
from ckpm.docker.images import FOLDER, Base, Image
from ckpm.docker.pulling import pull
from ckpm.docker.running import call, run
from ckpm.kernels.upstream.trees import Say

LOCKS = FOLDER / "locks"
_RECORD = "image.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """An image that an engine has. ``identity`` is its image id, ``packages`` the version of each of Debian's."""

    image: str
    tag: str
    identity: str
    packages: Mapping[str, str]


def identity(engine: Engine, name: str) -> str | None:
    """The image id of a tag, None if the engine has no such image."""
    done = call(identity_command(engine, name), output=subprocess.PIPE)
    return done.stdout.strip().removeprefix("sha256:") if done.returncode == 0 and done.stdout.strip() else None


def build(
    engine: Engine, image: Image, work: Path, sources: Sources, *, again: bool = False, say: Say = print
) -> Built:
    """Build an image below ``work``/NAME; ``again``: from nothing, under another tag, for comparison.

    Raises:
        PullError, DigestError: the base can't be had.
        ImageBuildError: a step failed; the message names the log.
        EngineMissingError, EnginePermissionError, DiskFullError, OutputError, and what :func:`context.fill` raises.
    """
    folder = work / image.name
    context.fill(image, folder / "context", sources, again=again, say=say)
    arguments = {} if image.is_local else {"BASE": pull(engine, image.base, say=say)}
    tag = context.tag(image) + ("-again" if again else "")
    log = folder / ("again.log" if again else "build.log")
    with tempfile.TemporaryDirectory() as private:
        order = Build(
            context=folder / "context",
            tag=tag,
            epoch=image.base.epoch,
            arguments=arguments,
            secrets=rootfs.secrets(image.base, Path(private)),
            cached=not again,
        )
        with writing(log), log.open("w", encoding="utf-8") as stream:
            done = call(build_command(engine, order), output=stream)
    if done.returncode:
        raise of_build(log.read_text(encoding="utf-8", errors="replace"), image.name, str(log))
    return Built(image=image.name, tag=tag, identity=identity(engine, tag) or "", packages=packages(engine, tag))


def ensure(engine: Engine, image: Image, work: Path, sources: Sources, *, say: Say = print) -> str:
    """The tag of an image, which is built if the engine has none of the same content. Raises as :func:`build`."""
    tag = context.tag(image)
    with folder_of(image, work):
        if identity(engine, tag) is None:
            say(f"building image {image.name} with {engine.name}")
            build(engine, image, work, sources, say=say)
    return tag


@contextmanager
def folder_of(image: Image, work: Path) -> Iterator[None]:
    """Hold the folder that an image is built in; another process waits. Raises DiskFullError, OutputError."""
    with locked(work / image.name / ".lock", "choose another folder with --work"):
        yield


def prove(engine: Engine, image: Image, first: Built, work: Path, sources: Sources, *, say: Say = print) -> None:
    """Build a second time from nothing. Raises NotReproducibleError: the image id is another."""
    second = build(engine, image, work, sources, again=True, say=say)
    call([engine.program, "rmi", second.tag], output=subprocess.PIPE)
    with writing(work):
        shutil.rmtree(work / image.name / "context")  # the second root file system lives nowhere else
    if second.identity == first.identity:
        return
    differing = differences(first.packages, second.packages)
    why = f"packages differ: {', '.join(differing)}" if differing else "the packages are the same: compare the layers"
    raise NotReproducibleError(
        f"image {image.name}: the second build is {second.identity}, the first {first.identity}; {why}. If the mirror "
        "changed meanwhile, build once more."
    )


def packages(engine: Engine, tag: str) -> dict[str, str]:
    """Version of each Debian package in an image."""
    query = ["dpkg-query", "--show", "--showformat", "${Package} ${Version}\\n"]
    said = output(engine, Run(image=tag, command=query, user="0:0"))
    return dict(line.split(" ", 1) for line in said.splitlines() if " " in line)


def output(engine: Engine, order: Run) -> str:
    """What a command in a new container prints. Raises ImageBuildError if it fails, and as :func:`running.run`."""
    done = run(engine, order, output=subprocess.PIPE)
    if done.returncode:
        raise of_build(done.stderr or done.stdout, f"{order.image}: '{' '.join(order.command)}'", "no log")
    return done.stdout


def lock_file(base: Base, locks: Path = LOCKS) -> Path:
    return locks / f"{base.name}.txt"


def differences(recorded: Mapping[str, str], installed: Mapping[str, str]) -> list[str]:
    """``name recorded -> installed`` for each installed package that is recorded otherwise or not at all."""
    return [
        f"{name} {recorded.get(name, 'none')} -> {version}"
        for name, version in sorted(installed.items())
        if recorded.get(name) != version
    ]


def read_lock(base: Base, locks: Path = LOCKS) -> dict[str, str]:
    """Version of each package that images of a base had when they were recorded."""
    file = lock_file(base, locks)
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))


def check_lock(base: Base, built: Built, locks: Path = LOCKS) -> None:
    """Raises PackagesDifferError: an image has other packages than those recorded for its base."""
    if differing := differences(read_lock(base, locks), built.packages):
        raise PackagesDifferError(
            f"image {built.image} is not the recorded one, {len(differing)} packages differ: "
            f"{', '.join(differing[:5])}{', ...' if len(differing) > 5 else ''}. Build from a mirror of that day, or "
            "record these with --update-locks."
        )


def write_lock(base: Base, images: Sequence[Built], locks: Path = LOCKS) -> None:
    """Record the packages of all images of a base in one file. Raises DiskFullError, OutputError."""
    together = {name: version for one in images for name, version in one.packages.items()}
    day = time.strftime("%Y-%m-%d", time.gmtime(base.epoch))
    head = f"# Packages of images on {base.name}, {day}: `nox -s docker -- --update-locks` writes this file.\n"
    body = "".join(f"{name} {version}\n" for name, version in sorted(together.items()))
    write_atomically(lock_file(base, locks), (head + body).encode())


def write_record(built: Built, work: Path, *, proven: bool) -> Path:
    """What was built, for other programs: ``work``/NAME/image.json. Raises DiskFullError, OutputError."""
    file = work / built.image / _RECORD
    make_folder(file.parent)
    document = {
        "image": built.image,
        "tag": built.tag,
        "id": f"sha256:{built.identity}",
        "reproduced": proven,
        "packages": dict(sorted(built.packages.items())),
    }
    write_atomically(file, (json.dumps(document, indent=1) + "\n").encode())
    return file

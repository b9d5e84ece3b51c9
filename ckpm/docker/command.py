"""List, render, lint and build the images of docker/images.yaml: ``ckpm images``."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from ckpm.base import settings
from ckpm.base.console import console, make_table
from ckpm.base.display import show
from ckpm.base.errors import CheckFailedError, UsageError
from ckpm.base.paths import INSTALLED
from ckpm.docker import building, context
from ckpm.docker.context import ImageSources, labels
from ckpm.docker.engines import CHOICES, Engine, detect
from ckpm.docker.images import Image, image, images

ACTIONS = ("list", "render", "lint", "build")
DEFAULT_WORK = Path("build/docker")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=ACTIONS, help="list; write Dockerfiles; lint them; build images")
    parser.add_argument(
        "--image", action="append", default=[], metavar="NAME", help="default: all; for build: all that are built here"
    )
    parser.add_argument("--work", type=Path, default=DEFAULT_WORK, help="folder of the results (default: %(default)s)")
    parser.add_argument("--engine", choices=CHOICES, default="auto", help="default: the first that works")
    parser.add_argument("--once", action="store_true", help="build: skip the second build that compares the image id")
    packages = parser.add_mutually_exclusive_group()
    packages.add_argument("--locked", action="store_true", help="build: fail if packages differ from docker/locks")
    packages.add_argument("--update-locks", action="store_true", help="build: record the packages in docker/locks")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run one action and return its exit code."""
    chosen = [image(name) for name in args.image] or list(images().values())
    build_options = [
        f"--{name.replace('_', '-')}" for name in ("once", "locked", "update_locks") if getattr(args, name)
    ]
    if build_options and args.action != "build":
        raise UsageError(f"{build_options[0]} goes with images build, not with images {args.action}.")
    if args.action == "list":
        _list(chosen)
    elif args.action == "build":
        _build([chosen_image for chosen_image in chosen if args.image or chosen_image.is_local], args)
    else:
        files = [context.write(chosen_image, args.work) for chosen_image in chosen]
        if args.action == "lint":
            context.lint(files)
        show(f"{args.action}: {len(files)} Dockerfiles in {args.work}")
    return 0


def _list(chosen: Sequence[Image]) -> None:
    table = make_table(("image", "purpose", "base", "ROCm", "archs", "CK", "tested"), fold=True)
    for chosen_image in chosen:
        base = chosen_image.base.pinned if chosen_image.base.reference else f"Debian {chosen_image.base.suite}"
        rocm = chosen_image.base.rocm if chosen_image.has_rocm else ""
        state = "yes" if chosen_image.tested else "no"
        archs = " ".join(chosen_image.archs)
        table.add_row(chosen_image.name, chosen_image.purpose.name, base, rocm, archs, chosen_image.ck, state)
    console().print(table)


def _build(chosen: Sequence[Image], args: argparse.Namespace) -> None:
    if args.update_locks and INSTALLED:
        raise UsageError("--update-locks writes into docker/locks of a clone: run it in a clone.")
    bases = [chosen_image.base for chosen_image in chosen] if args.locked else []
    bare = sorted({base.name for base in bases if not building.read_lock(base)})
    if bare:
        raise UsageError(f"docker/locks has no packages of {', '.join(bare)}: record them with --update-locks first.")
    engine = detect(args.engine)
    sources = ImageSources(settings.cache_folder(), labels())
    finished = []
    for chosen_image in chosen:
        with building.image_lock(chosen_image, sources):
            finished.append((chosen_image.base, _build_one(engine, chosen_image, sources, args)))
    by_name = {base.name: base for base, _ in finished}
    for base in by_name.values() if args.update_locks else ():
        building.write_lock(base, [built for own_base, built in finished if own_base == base])
        show(f"recorded: {building.lock_file(base)}")


def _build_one(engine: Engine, image: Image, sources: ImageSources, args: argparse.Namespace) -> building.BuiltImage:
    start = time.monotonic()
    built = building.build(engine, image, args.work, sources)
    show(f"{image.name}: sha256:{built.identity}, {time.monotonic() - start:.0f} s with {engine.name}", flush=True)
    if not args.update_locks:
        try:
            building.check_lock(image.base, built)
        except CheckFailedError as error:
            if args.locked:
                raise
            show(f"warning: {error}", flush=True)
    if not args.once:
        start = time.monotonic()
        building.prove(engine, image, built, args.work, sources)
        show(f"{image.name}: the same image id again from nothing, {time.monotonic() - start:.0f} s", flush=True)
    return built

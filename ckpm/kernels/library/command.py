"""``ckpm build``: build a library, with progress, failures and a one-line result."""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

from ckpm.base import settings
from ckpm.base.display import show
from ckpm.base.errors import UsageError
from ckpm.base.files import make_folder
from ckpm.base.jobs import job_count
from ckpm.base.outputs import demand_ours
from ckpm.base.rocm_choice import add_rocm_options
from ckpm.kernels.code.bf16 import add_definitions
from ckpm.kernels.code.toolchains import detect
from ckpm.kernels.families.libraries import whole
from ckpm.kernels.families.render import plan_units, render
from ckpm.kernels.families.spellings import features
from ckpm.kernels.library import building, reproduce
from ckpm.kernels.library.building import Elsewhere
from ckpm.kernels.library.manifest import MANIFEST, Manifest
from ckpm.kernels.library.request import LIBRARY, BuildRequest
from ckpm.kernels.library.resources import show as show_resources
from ckpm.kernels.upstream.trees import locate
from ckpm.matrix.dialects import Dialect, check_built_arch
from ckpm.matrix.options import DEFAULT_ARCH, add_selection_options, chosen_upstream, selection_from, split_words
from ckpm.matrix.selection import Selection, select_some


def add_options(parser: argparse.ArgumentParser) -> None:
    def run(args: argparse.Namespace) -> None:
        if args.render:
            return render_sources(*selection_from(args), args.unit_size, args.render)
        again = args.reproduce or args.built
        for option, name in {"--work": "work", "--no-cache": "no_cache"}.items():
            if again and getattr(args, name) != parser.get_default(name):
                raise UsageError(f"{option} has no effect with --reproduce or --built: leave it out.")
        options = read_options(args)
        return reproduce.run(options.request, job_count(options.jobs), args.built) if again else build(options)

    add_selection_options(parser, tier="smoke", checkouts=True)
    add_rocm_options(parser, "toolchain")
    parser.add_argument("--ck-root", type=Path, default=None, help="a CK checkout; default: CK_ROOT")
    parser.add_argument("--headers", type=Path, default=None, metavar="DIR", help="instead of our own headers (ckpm)")
    add_definitions(parser)
    parser.add_argument("--unit-size", type=int, default=8, help="kernels compiled together (default: 8)")
    parser.add_argument("--jobs", "-j", type=int, default=None, help="default: by processors and memory")
    parser.add_argument("--work", type=Path, default=Path(), help="folder that holds build/ (default: here)")
    parser.add_argument("--resources", action="store_true", help="then print the kernels with their registers and LDS")
    parser.add_argument("--emulator", action="store_true", help="compile its core meanwhile")
    parser.add_argument(
        "--no-cache", action="store_true", help="neither take objects from the shared cache nor add any"
    )
    parser.add_argument("--render", type=Path, metavar="DIR", help="write the sources there, and compile nothing")
    parser.add_argument("--reproduce", action="store_true", help="build twice without cache, and compare all files")
    parser.add_argument("--built", type=Path, metavar="DIR", help="build once, and compare with DIR/build")
    parser.set_defaults(run=run)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """The options of ``ckpm build``: the library, and how it is built on this machine.

    ``jobs`` is the number of compilers, None for the default. With ``emulator`` the emulator's core is compiled
    meanwhile. ``resources`` prints the kernels at the end.
    """

    request: BuildRequest
    jobs: int | None = None
    emulator: bool = False
    resources: bool = False


def read_options(args: argparse.Namespace) -> BuildOptions:
    """Return the options of a command line. An upstream that is missing is downloaded."""
    if args.unit_size < 1 or (args.jobs is not None and args.jobs < 1):
        raise UsageError("--unit-size and --jobs must be at least 1")
    for arch in split_words("--arch", args.arch, [DEFAULT_ARCH]):
        check_built_arch(arch)
    work = settings.nameable(Path(os.path.realpath(args.work)), "Choose another folder with --work")
    make_folder(work, "choose another folder with --work")
    cache = settings.cache_folder()
    ck_root = settings.ck_root(args.ck_root, [args.upstream] if args.upstream else [])
    upstream = chosen_upstream(args.upstream, ck_root)
    headers = Path(os.path.realpath(args.headers)) if args.headers else None
    tree = locate(upstream, cache=cache, ck_root=ck_root, headers=headers)
    if args.dialect not in (None, tree.dialect):
        raise UsageError(f"{tree.name} is of dialect {tree.dialect}, not {args.dialect}. Leave --dialect out.")
    _, selection = selection_from(args, tree.dialect)
    toolchain = detect(args.toolchain, cache=cache)
    request = BuildRequest(
        selection=replace(selection, families=whole(selection.families)),
        tree=tree,
        toolchain=replace(toolchain, flags=(*toolchain.flags, *args.definitions)),
        work=work,
        object_cache=None if args.no_cache else cache / "objects",
        unit_size=args.unit_size,
    )
    return BuildOptions(request=request, jobs=args.jobs, emulator=args.emulator, resources=args.resources)


def build(options: BuildOptions, elsewhere: Elsewhere | None = None) -> None:
    """Build the library of the options, with compilers ``elsewhere`` if given."""
    request, started = options.request, time.monotonic()
    jobs = job_count(options.jobs)
    tally = building.run(request, jobs=jobs, emulator=options.emulator, elsewhere=elsewhere)
    show(f"{request.folder}/{LIBRARY}: {tally.summary()}, {time.monotonic() - started:.1f} s")
    if options.resources:
        show_resources(Manifest.read(request.work / request.folder / MANIFEST))


def render_sources(dialect: Dialect, selection: Selection, unit_size: int, folder: Path) -> None:
    """Write a selection's sources, for any dialect, without a CK tree or a compiler.

    Sources of an earlier run that the selection lacks are removed, nothing else.
    """
    if unit_size < 1:
        raise UsageError("--unit-size must be at least 1")
    keys = select_some(dialect, replace(selection, families=whole(selection.families)))
    units = plan_units(keys, unit_size)
    demand_ours(folder / f"{name}.hip" for name in (*(unit.name for unit in units), "dispatch", "harness"))
    render(keys, units, dialect.name, features(dialect.name), folder)
    show(f"{folder}: {len(keys)} kernels in {len(units)} units, dispatch.hip, harness.hip ({dialect.name})")

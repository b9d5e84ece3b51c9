"""Commands with options of several rooms (docs/architecture.md), and public functions that run commands."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ckpm.matrix.explain import Explanation


def add_build_options(parser: argparse.ArgumentParser) -> None:
    from ckpm.base.errors import UsageError
    from ckpm.cluster import command as cluster_command
    from ckpm.kernels.library import command, reproduce
    from ckpm.matrix.options import add_selection_options, selection_from

    def run(args: argparse.Namespace) -> None:
        if args.render:
            return command.render_sources(*selection_from(args), args.unit_size, args.render)
        again = args.reproduce or args.built
        for option, name in {"--work": "work", "--no-cache": "no_cache"}.items():
            if again and getattr(args, name) != parser.get_default(name):
                raise UsageError(f"{option} has no effect with --reproduce or --built: leave it out.")
        machines = None if again else cluster_command.read_machines(args)
        if machines and args.jobs is not None:
            raise UsageError("--jobs is for compilers on this machine. Workers have their own number of threads.")
        options = command.read_options(args)
        if again:
            return reproduce.run(options, args.built)
        return command.build(options, cluster_command.compilers(machines, options.request))

    add_selection_options(parser, tier="smoke", checkouts=True)
    command.add_options(parser)
    cluster_command.add_options(parser)
    parser.add_argument("--render", type=Path, metavar="DIR", help="write the sources there, and compile nothing")
    parser.add_argument("--reproduce", action="store_true", help="build twice without cache, and compare all files")
    parser.add_argument("--built", type=Path, metavar="DIR", help="build once, and compare with DIR/build")
    parser.set_defaults(run=run)


def add_compare_options(parser: argparse.ArgumentParser) -> None:
    from ckpm.reports.gates import compare_command
    from ckpm.reports.gates.versions import remarks

    compare_command.add_options(parser, remarks)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    from ckpm.base.errors import UsageError
    from ckpm.reports.gates import model_command

    def run(args: argparse.Namespace) -> None:
        if args.references:
            model_command.show_references()
        elif args.counters is None:
            raise UsageError("name a FILE of ckpm measure, or give --references.")
        else:
            model_command.run(args)

    model_command.add_options(parser)
    parser.add_argument("--references", action="store_true", help="list published figures and their documents instead")
    parser.set_defaults(run=run)


def build(arch: str = "gfx950", *options: str, work: Path = Path()) -> Path:
    """Build a library as ``ckpm build --arch ARCH OPTIONS`` does, and return its path."""
    from ckpm.base.jobs import job_count
    from ckpm.base.logs import print_logs
    from ckpm.commands import parse
    from ckpm.kernels.library import command

    args = parse(["build", "--arch", arch, "--work", str(work), *options])
    with print_logs():
        build_options = command.read_options(args)
        command.run(build_options.request, jobs=job_count(build_options.jobs))
    return build_options.request.work / build_options.request.folder / "libckpm.so"


def list_kernels(*options: str) -> list[str]:
    """The names of the kernels that ``ckpm list OPTIONS`` lists."""
    from ckpm.commands import parse
    from ckpm.matrix.options import selection_from
    from ckpm.matrix.selection import select_some

    return [key.name for key in select_some(*selection_from(parse(["list", *options])))]


def why(name: str, *options: str) -> Explanation:
    """Explain why a kernel is selected or left out, as ``ckpm why OPTIONS NAME`` does."""
    from ckpm.commands import parse
    from ckpm.matrix import explain
    from ckpm.matrix.options import selection_from

    return explain.why(*selection_from(parse(["why", *options, name])), name)

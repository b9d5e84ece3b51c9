"""The request of a sweep: options, the kernels and cases that they select, and the facts that distinguish runs."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from ckpm.base import settings
from ckpm.base.display import show
from ckpm.base.errors import UsageError
from ckpm.base.files import sha256_of
from ckpm.base.paths import program_digest
from ckpm.base.rocm_choice import add_rocm_options
from ckpm.kernels.code.toolchains import detect
from ckpm.kernels.families.libraries import host, library_of, library_with
from ckpm.kernels.library.request import BuildRequest
from ckpm.kernels.upstream.tree import Tree
from ckpm.kernels.upstream.trees import locate
from ckpm.matrix.configurations.sweeps import read_sweep
from ckpm.matrix.defects import split
from ckpm.matrix.dialects import check_built_arch, dialect
from ckpm.matrix.keys import Key
from ckpm.matrix.options import DEFAULT_ARCH, DEFAULT_UPSTREAM, chosen_upstream
from ckpm.matrix.problems.case import TIERS
from ckpm.matrix.problems.testing import ListedShape, parse_shape, shapes
from ckpm.matrix.selection import Selection, parse_shard, select_some, take_shard
from ckpm.timing import machine
from ckpm.timing.sweeps.cases import SweepCase, cases, own_cases
from ckpm.timing.sweeps.results import filter_keys

OWN = "one"  # recorded as category without --category: each kernel gets one shape, made for it
SIZES = "batch=2,seqlen_q=192,seqlen_k=200,nhead_q=4,nhead_k=2"
MOST_INSTRUCTIONS = 20_000_000
_SIZE_FIELDS = ("batch", "seqlen_q", "seqlen_k", "nhead_q", "nhead_k", "layout")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest:
    """A sweep. ``keys`` are the kernels of this shard in dispatch order, then kernels of later stages.

    ``order`` is each kernel's position among the kernels of all shards.
    """

    arch: str
    tree: Tree
    families: tuple[str, ...]
    library: str
    keys: tuple[Key, ...]
    order: dict[str, int]
    cases: tuple[SweepCase, ...]
    facts: dict[str, str]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, metavar="CONFIG", help="a sweep: the tile engine's JSON, or ours")
    parser.add_argument("--arch", default=DEFAULT_ARCH, help="(default: %(default)s)")
    parser.add_argument("--upstream", default=None, help=f"(default: {DEFAULT_UPSTREAM}, checkout if CK_ROOT is set)")
    parser.add_argument("--ck-root", type=Path, default=None, help="a CK checkout; default: CK_ROOT")
    add_rocm_options(parser, "toolchain", "device")
    parser.add_argument("--category", choices=TIERS, default=None, help="the testing matrix's shapes of this tier")
    parser.add_argument(
        "--shape", default=SIZES, metavar="SIZES", help="sizes of launches without --category (default: %(default)s)"
    )
    parser.add_argument("--max-kernels", type=int, default=None, metavar="N", help="the first N kernels alone")
    parser.add_argument(
        "--filter", action="append", default=[], metavar="EXPR", help='such as "c.hdim_q == 128 and c.lse"'
    )
    parser.add_argument(
        "--filter-file", action="append", default=[], type=Path, metavar="FILE", help="def filter_config(c) -> bool"
    )
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="the I-th of N equal parts of the kernels")
    parser.add_argument("--verify", action="store_true", help="compare with a float64 reference")
    parser.add_argument(
        "--most-instructions", type=int, default=MOST_INSTRUCTIONS, metavar="N",
        help="on the emulator: skip launches of more than about N wave-instructions (default: %(default)s)",
    )  # fmt: skip


def asked_for(args: argparse.Namespace) -> SweepRequest:
    """Read the sweep, the problems and the selection of a command line."""
    if args.max_kernels is not None and args.max_kernels < 1:
        raise UsageError("--max-kernels must be at least 1")
    arch, shard = check_built_arch(args.arch).name, parse_shard(args.shard)
    sweep, sizes = read_sweep(args.config), _sizes(args)
    for note in sweep.notes:
        show(f"{args.config}: {note}", file=sys.stderr)
    cache, root = settings.cache_folder(), settings.ck_root(args.ck_root, [args.upstream] if args.upstream else [])
    tree = locate(chosen_upstream(args.upstream, root), cache=cache, ck_root=root)
    selection = Selection(archs=(arch,), families=sweep.families, where=sweep.where)
    keys, _ = split(select_some(dialect(tree.dialect), selection), tree.dialect)
    library = library_of(sweep.families, tree.dialect, bool(tree.own))
    chosen = [key for key in keys if key.family == library]
    chosen = filter_keys(chosen, args.filter, args.filter_file)[: args.max_kernels]
    if not chosen:
        raise UsageError(f"no kernel of {args.config} is left by --filter and --filter-file.", kind="empty-selection")
    shard_keys = chosen if shard[1] == 1 else take_shard(chosen, shard)
    if not shard_keys:
        raise UsageError(
            f"--shard {args.shard} of {len(chosen)} kernels is empty: use fewer shards.", kind="empty-selection"
        )
    sweep_cases = (
        own_cases(shard_keys, sizes) if args.category is None else cases(chosen, shapes(args.category), shard_keys)
    )
    return SweepRequest(
        arch=arch,
        tree=tree,
        families=sweep.families,
        library=library,
        keys=(*shard_keys, *_later_stages(keys, shard_keys)),
        order={key.name: at for at, key in enumerate(chosen)},
        cases=sweep_cases,
        facts=_facts(args, tree, arch),
    )


def _later_stages(keys: Sequence[Key], first: Sequence[Key]) -> tuple[Key, ...]:
    """The kernels of later stages that can follow the first stage's kernels."""
    wanted = {(key.dtype, key.hdim_v, key.mode) for key in first}
    own = first[0].family
    return tuple(key for key in keys if key.family != own and (key.dtype, key.hdim_v, key.mode) in wanted)


def _sizes(args: argparse.Namespace) -> ListedShape:
    """Read --shape. Refuse a field that each kernel fixes."""
    for part in args.shape.split(","):
        if (name := part.partition("=")[0].strip()) not in _SIZE_FIELDS:
            raise UsageError(f"--shape: '{name}' is none of {', '.join(_SIZE_FIELDS)}: the rest is each kernel's own.")
    return parse_shape(args.shape)


def _facts(args: argparse.Namespace, tree: Tree, arch: str) -> dict[str, str]:
    """Facts that determine the results."""
    return {
        "config": sha256_of(args.config),
        "arch": arch,
        "category": args.category or OWN,
        "shape": "" if args.category else args.shape,
        "upstream": tree.name,
        "upstream_identity": tree.identity,
        "toolchain": detect(args.toolchain, cache=settings.cache_folder()).identity,
        "filters": "\n".join([*args.filter, *map(sha256_of, args.filter_file)]),
        "max_kernels": str(args.max_kernels or ""),
        "shard": args.shard,
        "device": args.device,
        "verify": str(args.verify).lower(),
        "most_instructions": str(args.most_instructions),
        "program": program_digest(),
        "model": sha256_of(machine.TABLE),
    }


def request(sweep: SweepRequest, keys: Sequence[Key], toolchain: str, work: Path) -> BuildRequest:
    """The request to build one library with these kernels in ``work``."""
    cache = settings.cache_folder()
    names = tuple(key.name for key in keys)
    return BuildRequest(
        selection=Selection(archs=(sweep.arch,), families=sweep.families, where=(f"key.name in {names!r}",)),
        tree=sweep.tree,
        toolchain=detect(toolchain, cache=cache),
        work=work,
        object_cache=cache / "objects",
    )


_SIGNATURE = attrgetter(
    *("family", "dtype", "hdim_q", "hdim_v", "mode", "vlayout", "logits", "mask", "bias", "qscale", "sink", "lse"),
    *("dropout", "skip", "paged_kv", "page_size", "kv_layout", "kv_table"),
)


def layers(keys: Sequence[Key]) -> tuple[tuple[Key, ...], ...]:
    """The kernels of each library, in dispatch order: the n-th of each signature are in the n-th library.

    All of ``keys`` are of one library's families. A launch through fwd's C ABI can't name a kernel: dispatch takes the
    first that fits. So kernels with the same signature, which differ in tile, padding or pipeline, go to different
    libraries. If launches can name a kernel, one library has all. Kernels of a later stage are in every library.
    """
    library = library_with(keys[0].family)
    if host(library).arguments.BY_NAME:
        return (tuple(keys),)
    seen: Counter[object] = Counter()
    parts: list[list[Key]] = []
    for key in keys:
        if key.family != library:
            continue
        signature = _SIGNATURE(key)
        if seen[signature] == len(parts):
            parts.append([])
        parts[seen[signature]].append(key)
        seen[signature] += 1
    others = [key for key in keys if key.family != library]
    return tuple((*others, *own) for own in parts)

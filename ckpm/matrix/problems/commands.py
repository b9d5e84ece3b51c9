"""``ckpm problems --shapes`` and ``match``: the testing matrix's shapes, and the kernels that serve them."""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ckpm.base.display import show
from ckpm.base.errors import NameSyntaxError, UsageError
from ckpm.base.rows import FORMATS, format_rows, table
from ckpm.matrix.dialects import FAMILIES, HAND_WRITTEN
from ckpm.matrix.keys import Key
from ckpm.matrix.names import names_with
from ckpm.matrix.options import add_selection_options, selection_from
from ckpm.matrix.problems.case import TIERS
from ckpm.matrix.problems.matching import Matcher, count_shapes, is_tried
from ckpm.matrix.problems.testing import DIRECTIONS, ListedShape, parse_shape, shapes
from ckpm.matrix.selection import select_some

_SHOWN = 5  # shapes without a kernel, named on stderr with a list of pairs
_PAIRS = ("shape", "family", "kernel")


def list_shapes(args: argparse.Namespace) -> str:
    """List shapes by name, or with every field. The last column is the reason why a shape is impossible."""
    chosen = _chosen(shapes(args.tier), args.test)
    if not args.count:
        return format_rows((shape.row() for shape in chosen), args.format, _lines(shape.name for shape in chosen))
    rows = []
    for direction in DIRECTIONS:
        for tier in TIERS[: TIERS.index(args.tier) + 1]:
            in_tier = [shape for shape in chosen if (shape.direction, shape.tier) == (direction, tier)]
            impossible = sum(bool(shape.impossible) for shape in in_tier)
            rows.append({"direction": direction, "tier": tier, "shapes": len(in_tier), "impossible": impossible})
    return format_rows(rows, args.format, table(rows, left=0))


def add_match_options(parser: argparse.ArgumentParser) -> None:
    add_selection_options(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--shapes", default=None, metavar="TIER", help="of the testing matrix (default: smoke)")
    which.add_argument("--shape", default=None, metavar="FIELD=VALUE,...", help="one, e.g. hdim_q=128,mask=top_left")
    parser.add_argument("--test", default=None, metavar="GLOB", help="glob over the shapes' names")
    parser.add_argument("--kernel", default=None, metavar="NAME", help="one kernel of the selection")
    parser.add_argument(
        "--by",
        choices=("shape", "kernel", "pair"),
        default=None,
        help="a line for each shape with how many kernels serve it, for each kernel with how many shapes exercise it, "
        "or for each pair (default: pair with --shape or --kernel, else shape)",
    )
    parser.add_argument("--uncovered", action="store_true", help="only shapes or kernels that have no counterpart")
    parser.add_argument("--count-only", action="store_true", help="how many of either, by family")
    parser.add_argument("--format", choices=FORMATS, default="text", help="(default: %(default)s)")


def match(args: argparse.Namespace) -> str:
    """The output of ``match``."""
    by = args.by or ("shape" if args.shape is None and args.kernel is None else "pair")
    if args.uncovered and by == "pair":
        raise UsageError("--uncovered lists shapes or kernels: add --by shape or --by kernel")
    candidates = (parse_shape(args.shape),) if args.shape is not None else shapes(args.shapes or "smoke")
    chosen = _chosen(candidates, args.test)
    keys = _kernels(args)
    matcher = Matcher(keys)
    if args.count_only:
        rows = _counts(matcher, keys, chosen)
        return format_rows(rows, args.format, table(rows, left=0))
    if by == "kernel":
        counts = count_shapes(matcher, chosen)
        rows = [{"kernel": key.name, "family": key.family, "shapes": counts[key.name]} for key in keys]
        rows = [row for row in rows if not (args.uncovered and row["shapes"])]
        return format_rows(rows, args.format, _lines(f"{row['shapes']:6} {row['kernel']}" for row in rows))
    rows = _by_shape(matcher, chosen)
    if by == "pair":
        _tell_unserved(rows)
        pairs = _pairs(matcher, chosen)
        fixed_half = "shape" if args.shape is not None else "kernel" if args.kernel is not None else ""
        halves = [name for name in ("shape", "kernel") if name != fixed_half]
        return format_rows(pairs, args.format, _lines(" ".join(row[name] for name in halves) for row in pairs), _PAIRS)
    rows = [row for row in rows if not (args.uncovered and row["kernels"])]
    return format_rows(rows, args.format, _lines(map(_shape_line, rows)), ("shape", "family", "kernels", "reason"))


def _chosen(candidates: Iterable[ListedShape], glob: str | None) -> list[ListedShape]:
    named = [shape for shape in candidates if glob is None or fnmatch.fnmatchcase(shape.name, glob)]
    if not named:
        raise UsageError(
            f"no shape is named like --test '{glob}'. List them with `ckpm problems --shapes`.", kind="empty-selection"
        )
    return named


def _kernels(args: argparse.Namespace) -> list[Key]:
    keys = select_some(*selection_from(args))
    if args.kernel is None:
        return keys
    there = names_with(args.kernel, [key.name for key in keys])
    if len(there) != 1:
        what = f"a part of {len(there)} of the" if there else "not among the"
        raise NameSyntaxError(f"--kernel {args.kernel}: {what} {len(keys)} selected. See --family, --arch.")
    return [key for key in keys if key.name in there]


def _by_shape(matcher: Matcher, chosen: Sequence[ListedShape]) -> list[dict[str, Any]]:
    rows = []
    for family in matcher.families:
        for shape in chosen:
            if is_tried(family, shape):
                matched = matcher(family, shape)
                row = {"shape": shape.name, "family": family, "kernels": len(matched.kernels), "reason": matched.reason}
                rows.append(row)
    return rows


def _pairs(matcher: Matcher, chosen: Sequence[ListedShape]) -> list[dict[str, Any]]:
    return [
        dict(zip(_PAIRS, (shape.name, family, key.name), strict=True))
        for family in matcher.families
        for shape in chosen
        if is_tried(family, shape)
        for key in matcher(family, shape).kernels
    ]


def _tell_unserved(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the shapes without a kernel, which are in no pair."""
    unserved = [row for row in rows if not row["kernels"]]
    for row in unserved[:_SHOWN]:
        show(f"{row['shape']}: no {row['family']} kernel: {row['reason']}", file=sys.stderr)
    if len(unserved) > _SHOWN:
        show(f"{len(unserved) - _SHOWN} more have no kernel: --by shape --uncovered lists them", file=sys.stderr)


def _counts(matcher: Matcher, keys: Sequence[Key], chosen: Sequence[ListedShape]) -> list[dict[str, Any]]:
    """Count, by family, shapes (served, not served, impossible) and kernels (exercised or not)."""
    counts = count_shapes(matcher, chosen)
    rows = []
    for family in (name for name in (*FAMILIES, *HAND_WRITTEN) if name in matcher.families):
        tried = [shape for shape in chosen if is_tried(family, shape)]
        served = sum(bool(matcher(family, shape).kernels) for shape in tried)
        impossible = sum(bool(shape.impossible) for shape in tried)
        kernels = [key for key in keys if key.family == family]
        used = sum(key.name in counts for key in kernels)
        rows.append(
            {
                "family": family,
                "shapes": len(tried),
                "served": served,
                "unserved": len(tried) - served - impossible,
                "impossible": impossible,
                "kernels": len(kernels),
                "exercised": used,
                "unexercised": len(kernels) - used,
            }
        )
    return rows


def _shape_line(row: Mapping[str, Any]) -> str:
    reason = f": {row['reason']}" if row["reason"] else ""
    return f"{row['kernels']:6} {row['family']} {row['shape']}{reason}"


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)

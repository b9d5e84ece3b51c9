"""Command-line options that select kernels, for all commands that do so."""

from __future__ import annotations

import argparse
import functools
import os
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ckpm.base.display import one_line, show
from ckpm.base.errors import UnknownWordError, UsageError, did_you_mean
from ckpm.base.outputs import refuse_inputs_among
from ckpm.base.rocm_choice import settle
from ckpm.base.tablefile import read_table
from ckpm.matrix.dialects import (
    DEFAULT_FAMILY,
    TABLES,
    Dialect,
    UpstreamTable,
    check_arch,
    check_receipt,
    check_upstream,
    dialect,
    dialect_names,
    receipts,
    upstreams,
)
from ckpm.matrix.families import MASK_IMPLS
from ckpm.matrix.selection import Selection, is_glob, parse_shard, profiles, tiers

DEFAULT_UPSTREAM = "aiter"
DEFAULT_ARCH = "gfx950"
_LONGEST_COMPLAINT = 1000


def chosen_upstream(upstream: str | None, root: Path | None) -> str:
    """Return the selected upstream; else the checkout of :func:`settings.ck_root`, else the default package."""
    return upstream or ("checkout" if root else DEFAULT_UPSTREAM)


class _Store(argparse.Action):
    """An option with one value: two different values in a command line are a mistake."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if option_string and parser.option_values.setdefault(self.dest, values) != values:
            parser.error(f"{option_string} is given twice, as {parser.option_values[self.dest]} and {values}")
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UsageError instead of printing and exiting.

    Options can't be abbreviated, so that a new option never changes the meaning of a line. An option has one value.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})
        self.option_values: dict[str, Any] = {}
        self.register("action", None, _Store)
        self.register("action", "store", _Store)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse a command's arguments and refuse unknown ones, which argparse leaves to the program's parser.

        Refuses an output that is also an input (ckpm/base/outputs.py). Replaces a profile that stands for an upstream
        by that upstream. Completes the choice of compiler and device (ckpm/base/rocm_choice.py).
        """
        self.option_values.clear()
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            hint = did_you_mean(unknown[0].partition("=")[0], list(self._option_string_actions))
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        self._refuse_unwritable(parsed)
        settle(parsed)
        _take_variant(parsed)
        refuse_inputs_among(parsed)
        return parsed, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value that is none of an option's choices, and name the nearest."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += did_you_mean(str(value), [str(choice) for choice in action.choices or ()])
            raise

    def _refuse_unwritable(self, parsed: argparse.Namespace) -> None:
        """Refuse control characters and half characters, which results, messages and names can't contain."""
        for name, value in vars(parsed).items():
            for part in value if isinstance(value, list | tuple) else [value]:
                allowed = "\n\t" if isinstance(part, str) else ""
                if isinstance(part, str | Path) and any(
                    unicodedata.category(letter) in ("Cc", "Cs") and letter not in allowed for letter in str(part)
                ):
                    self.error(f"{name}: {str(part)!r} holds a control character, or bytes that are not text")

    def error(self, message: str) -> NoReturn:
        text = one_line(message, _LONGEST_COMPLAINT)
        raise UsageError(f"{text}{'' if text.endswith(('.', '?')) else '.'} See {self.prog} --help.")


def _take_variant(parsed: argparse.Namespace) -> None:
    """Replace upstream and profile by the upstream that the profile stands for."""
    upstream = getattr(parsed, "upstream", None) or DEFAULT_UPSTREAM
    if profile := getattr(parsed, "library_profile", None):
        parsed.upstream, parsed.library_profile = library_variant(upstream, profile), None
    elif (profile := getattr(parsed, "profile", None)) and (chosen := variant(upstream, profile)):
        parsed.upstream, parsed.profile = chosen, None


@functools.cache
def upstream_profiles() -> Mapping[str, Mapping[str, str]]:
    """The upstream that each profile of an upstream stands for, by upstream and profile (matrix/upstreams.yaml)."""
    table = read_table(TABLES / "upstreams.yaml", UpstreamTable)
    for name, row in table.record.profiles.items():
        if name not in upstreams():
            raise table.fail("is not an upstream of this table", "profiles", name)
        for profile, variant in row.items():
            if variant not in upstreams():
                raise table.fail(f"'{variant}' is not an upstream of this table", "profiles", name, profile)
            if profile in profiles():
                raise table.fail("is also a profile of selections.yaml; rename one", "profiles", name, profile)
    return table.record.profiles


def variant(upstream: str, profile: str) -> str | None:
    """The upstream that a profile of ``upstream`` stands for; None for other profiles.

    A profile of another upstream is a UsageError.
    """
    if upstream != "checkout":
        check_upstream(upstream)
    if profile in (own := upstream_profiles().get(upstream, {})):
        return own[profile]
    if others := [name for name, row in upstream_profiles().items() if profile in row]:
        raise UsageError(
            f"--profile {profile}: upstream {upstream} has no such profile. Ask for --upstream {' or '.join(others)}."
        )
    return None


def library_variant(upstream: str, profile: str) -> str:
    """Return :func:`variant` for commands that take a built library; all other profiles are refused."""
    if chosen := variant(upstream, profile):
        return chosen
    if profile in profiles():
        raise UsageError(
            f"--profile {profile} narrows what is built or listed; leave it out: a library is taken whole."
        )
    if upstream not in upstream_profiles():
        raise UsageError(f"--profile {profile}: upstream {upstream} has no profiles. Leave it out.")
    raise UnknownWordError("profile", profile, upstream_profiles()[upstream])


def add_library_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--upstream`` and ``--profile`` for commands that take a built library."""
    parser.add_argument("--upstream", default=None, help=f"(default: {DEFAULT_UPSTREAM}, checkout if CK_ROOT is set)")
    listed = "; ".join(f"{', '.join(row)} of {name}" for name, row in upstream_profiles().items())
    parser.add_argument("--profile", dest="library_profile", default=None, metavar="NAME", help=listed)


def add_dialect_options(parser: argparse.ArgumentParser, *, checkouts: bool = False) -> None:
    """Add the options that select a dialect: ``--upstream``, ``--dialect``, ``--mask``.

    ``checkouts`` is True for commands that read source trees. The matrix itself reads none.
    """
    names = ", ".join([*upstreams(), *(["checkout"] if checkouts else [])])
    but = ", checkout if CK_ROOT is set" if checkouts else ""
    parser.add_argument("--upstream", default=None, help=f"{names} (default: {DEFAULT_UPSTREAM}{but})")
    parser.add_argument(
        "--dialect",
        default=None,
        help=f"{', '.join(dialect_names())}, or DIALECT+FEATURE with features of matrix/dialects/features.yaml "
        "(default: the upstream's own dialect)",
    )
    parser.add_argument(
        "--mask", choices=MASK_IMPLS, default="simplified", help="upstream's mask set (default: %(default)s)"
    )


def add_selection_options(parser: argparse.ArgumentParser, *, tier: str = "full", checkouts: bool = False) -> None:
    """Add the options of a selection, which combine with AND. ``tier`` is the default of ``--tier``.

    With a filter, families other than batch prefill default to the tier full: smoke has few of their kernels. A filter
    that names one kernel implies the tier full for every family. Without --family, a filter that begins as a family's
    names implies the family.
    """
    add_dialect_options(parser, checkouts=checkouts)
    many, lists = "append", "repeat it or separate by commas"
    parser.add_argument("--arch", action=many, metavar="ARCH", help=f"{lists} (default: {DEFAULT_ARCH})")
    family = f"or 'all'; {lists} (default: the family of a kernel's name, else {DEFAULT_FAMILY})"
    parser.add_argument("--family", action=many, metavar="NAME", help=family)
    parser.add_argument("--receipt", default="0", metavar="N", help=f"{', '.join(map(str, receipts()))} (default: 0)")
    but = "" if tier == "full" else f"; full for families other than {DEFAULT_FAMILY} with a filter"
    own = "".join(f"; {row.default_tier} of {name}" for name, row in upstreams().items() if row.default_tier)
    parser.add_argument("--tier", default=None, help=f"{', '.join(tiers())} (default: {tier}{but}{own})")
    parser.set_defaults(default_tier=tier)
    variants = [f"{word} of {name}" for name, row in upstream_profiles().items() for word in row]
    parser.add_argument("--profile", default=None, help=", ".join([*profiles(), *variants]))
    parser.add_argument(
        "--filter", action=many, default=[], metavar="GLOB", help="glob over names, or part of one name"
    )
    parser.add_argument(
        "--where", action=many, default=[], metavar="EXPR", help="e.g. \"key.hdim_q == 128 and key.bias == 'no'\""
    )
    parser.add_argument(
        "--filter-file", action=many, default=[], type=Path, metavar="FILE", help="Python: def keep(key) -> bool"
    )
    parser.add_argument("--shard", default=None, metavar="I/N", help="the I-th of N equal parts, e.g. 3/16")


def dialect_from(args: argparse.Namespace) -> Dialect:
    """The dialect of ``--dialect`` or ``--upstream``. A checkout is refused: only kernels/ finds out its dialect."""
    if args.dialect is not None:
        return dialect(args.dialect)
    upstream = args.upstream or DEFAULT_UPSTREAM
    if upstream == "checkout":
        raise UsageError(
            "--upstream checkout: the matrix doesn't look at source trees. Name the tree's dialect with "
            f"--dialect ({', '.join(dialect_names())})."
        )
    if args.upstream is None and os.environ.get("CK_ROOT"):
        show(
            f"note: CK_ROOT is set, but this command reads no source tree: its kernels are those of {upstream}. "
            "`ckpm doctor` names the tree's dialect, and --dialect NAME takes it.",
            file=sys.stderr,
        )
    return dialect(check_upstream(upstream).dialect)


def selection_from(args: argparse.Namespace, dialect_name: str = "") -> tuple[Dialect, Selection]:
    """The dialect and selection of parsed options; ``dialect_name`` is the dialect of a source tree.

    Tier, profile, expressions and filter files are checked when keys are selected.
    """
    chosen = dialect(dialect_name) if dialect_name else dialect_from(args)
    texts = [*args.filter, *([args.name] if "name" in args else ())]
    families = split_words("--family", args.family, _families_of(chosen, texts) or [DEFAULT_FAMILY])
    if "all" in families:
        families = tuple(chosen.families)
    filtered = args.filter or args.where or args.filter_file
    full = (filtered and DEFAULT_FAMILY not in families) or not all(map(is_glob, args.filter))
    upstream = upstreams().get(args.upstream or "")
    default = (upstream and upstream.default_tier) or args.default_tier
    return chosen, Selection(
        archs=tuple(check_arch(name).name for name in split_words("--arch", args.arch, [DEFAULT_ARCH])),
        families=tuple(chosen.family(name).name for name in families),
        receipt=check_receipt(args.receipt),
        mask_impl=args.mask,
        tier=args.tier or ("full" if full else default),
        profile=args.profile,
        filters=tuple(args.filter),
        where=tuple(args.where),
        filter_files=tuple(args.filter_file),
        shard=None if args.shard is None else parse_shard(args.shard),
    )


def _families_of(chosen: Dialect, texts: Sequence[str]) -> list[str]:
    """The families whose kernels' names begin as the texts do."""
    starts = {family.grammar.partition("{")[0]: family.name for family in chosen.all_families()}
    begun = [[start for start in starts if text.startswith(start)] for text in texts]
    return list(dict.fromkeys(starts[max(some, key=len)] for some in begun if some))


def split_words(option: str, texts: Sequence[str] | None, default: Sequence[str]) -> tuple[str, ...]:
    """The comma-separated words of a repeatable option, each once, in order; ``default`` without the option."""
    if texts is None:
        return tuple(default)
    listed = tuple(dict.fromkeys(word.strip() for text in texts for word in text.split(",") if word.strip()))
    if not listed:
        raise UsageError(f"{option} is empty; leave it out for {', '.join(default)}")
    return listed

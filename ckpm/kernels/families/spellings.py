"""C++ text that the families share: spellings of axis values, flags, pads, tiles, a dialect's features; templates.

kernels/spellings.yaml has the spellings; an error in it names file, line and field.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from ckpm.base.errors import UsageError
from ckpm.base.paths import data
from ckpm.base.tablefile import Field, Record, read_table
from ckpm.matrix.dialects import without_features
from ckpm.matrix.keys import Key, Tile

SPELLINGS = data("kernels", "spellings.yaml")


class _Dtype(Record, frozen=True):
    type: str
    bytes: int


class _TypeEnum(Record, frozen=True):
    type: str
    enum: str


class _TypeCheck(Record, frozen=True):
    type: str
    check: str


class _EnumCheck(Record, frozen=True):
    enum: str
    check: str


class _Cpp(Record, frozen=True):
    paged: bool
    launch_takes_block_size: bool
    trait_names_trload: bool
    takes_load: bool
    own_headers: bool
    names_sink: bool = False
    trait_names_occupancy: bool = False
    problem_names_buffering: bool = False
    bwd_workspace: bool = False
    bwd_asks_longest: bool = False
    bwd_clears_workspace: bool = False


class SpellingTable(Record, frozen=True):
    """The record of spellings.yaml: axis -> value -> spelling; masks by mask implementation, then value."""

    dtype: dict[str, _Dtype]
    pipeline: dict[str, _TypeEnum]
    mask: dict[str, dict[str, _TypeCheck]]
    bias: dict[str, _EnumCheck]
    qscale: dict[str, _EnumCheck]
    kv_layout: dict[str, str]
    kv_table: dict[str, str]
    load: dict[str, str]
    when: dict[str, str]
    dialects: dict[str, _Cpp]
    fwd_pipeline: dict[str, _TypeEnum]
    pagedkv_pipeline: dict[str, _TypeEnum]
    splitkv_pipeline: dict[str, _TypeEnum]
    rope: dict[str, _EnumCheck]
    bwd_dtype: dict[str, str]
    dropout_impl: dict[str, _TypeCheck]
    bwd_when: dict[str, str]


class Words(dict[str, Any]):
    """Spellings by name. A missing name raises TableError with its line in the table."""

    def __init__(self, field: Field) -> None:
        super().__init__(field.map(lambda member: Words(member) if isinstance(member.value, dict) else member.value))
        self._field = field

    def __missing__(self, name: str) -> Any:
        raise self._field.fail(f"no C++ word for '{name}'; there are {', '.join(self)}")


@functools.cache
def spellings(file: Path = SPELLINGS) -> Words:
    """The spellings of every axis value, with the members of SpellingTable."""
    return Words(read_table(file, SpellingTable).root)


@functools.cache
def environment() -> jinja2.Environment:
    """The template engine; a name without a value is an error."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(data("kernels", "templates")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - C++ is written, not HTML
    )


def fill(template: str, **context: object) -> str:
    """The text of a template with these values."""
    return environment().get_template(template).render(**context)


class _Slot(jinja2.Undefined):
    """A value that is not known yet: the text has a slot for it."""

    def __str__(self) -> str:
        return f"%({self._undefined_name})s"


@functools.cache
def pattern(template: str, **context: object) -> str:
    """A template with a slot for each value that ``context`` lacks, to be substituted with ``%``.

    So the engine runs once for thousands of kernels. Such a template writes C++'s ``%`` as ``%%``.
    """
    return environment().overlay(undefined=_Slot).get_template(template).render(**context)


class Features(_Cpp, frozen=True):
    """Differences between the C++ of CK's versions that the templates follow.

    With ``takes_load`` batch prefill's traits have the load mode, and dispatch asks for it. With ``own_headers`` the
    text is for kernels/include_prefill alone: a tree of that version has other classes. With ``names_sink`` (2026) fwd,
    fwd_pagedkv and fwd_splitkv have sinks, fwd's scale is an enumeration, and fwd has V3.
    With ``trait_names_occupancy`` (rocm-libraries pull request 11298) a trait's last parameter is the tile's occupancy.
    With ``problem_names_buffering`` fwd's pipeline problem has two more flags, false outside gfx125.
    With ``bwd_workspace`` (2026) bwd's conditions read the request alone, and dQ is accumulated in a workspace. With
    ``bwd_clears_workspace`` a kernel clears it, with ``bwd_asks_longest`` group mode asks for the longest sequence.
    ``selector_takes_base`` is a property of the tree, not of the dialect: since rocm-libraries pull request 9214,
    fmha_batch_prefill_select_kv_load_mode also takes the V stride and both base addresses.
    """

    selector_takes_base: bool = True


def features(dialect: str, *, selector_takes_base: bool = True) -> Features:
    """Return the features of a dialect, which must have C++."""
    dialects = spellings()["dialects"]
    base, added = without_features(dialect)
    if base not in dialects:
        raise UsageError(
            f"Dialect {dialect} has no C++ to render: only its kernels' names are known. "
            f"Dialects with C++: {', '.join(dialects)}."
        )
    changes = {name: value for feature in added for name, value in feature.cpp.items()}
    return Features(**{**dialects[base], **changes}, selector_takes_base=selector_takes_base)


def flag(value: bool | None) -> str:
    return "true" if value else "false"


def occupancy(key: Key, cpp: Features) -> str:
    """The last argument of a trait that names the tile's occupancy, with its comma."""
    return f", {key.tile.occupancy}" if cpp.trait_names_occupancy else ""


def sink(key: Key, cpp: Features) -> str:
    """The argument of traits that say if there is a sink, with its comma."""
    return f", {flag(key.sink)}" if cpp.names_sink else ""


@functools.cache
def pad_flags(pad: str) -> tuple[bool, bool, bool, bool]:
    """Parse a padding such as ``psskddv``: True for each of seqlen_q, seqlen_k, hdim_q and hdim_v that is padded.

    ``npad`` pads none of them.
    """
    match = re.fullmatch(r"p(s)?(sk)?(d)?(dv)?", "p" if pad == "npad" else pad)
    if match is None:
        raise ValueError(f"not a padding: {pad}")
    seqlen_q, seqlen_k, hdim_q, hdim_v = (group is not None for group in match.groups())
    return seqlen_q, seqlen_k, hdim_q, hdim_v


@functools.cache
def pad_words(pad: str) -> Mapping[str, str]:
    """Template arguments of the padding: all four flags, and the two that an epilogue takes."""
    spad, skpad, dpad, dvpad = map(flag, pad_flags(pad))
    return {"pads": f"{spad}, {skpad}, {dpad}, {dvpad}", "spad": spad, "dvpad": dvpad}


@functools.cache
def tile_words(tile: Tile) -> Mapping[str, str]:
    """Template arguments of a forward tile (CK's TileFmhaShape): occupancy; block, waves, warp tiles of both gemms."""
    return {
        "occupancy": str(tile.occupancy),
        "block": f"{tile.bm0}, {tile.bn0}, {tile.bk0}, {tile.bn1}, {tile.bk1}, {tile.bk0max}",
        "waves0": f"{tile.rm0}, {tile.rn0}, {tile.rk0}",
        "waves1": f"{tile.rm1}, {tile.rn1}, {tile.rk1}",
        "warp_tile0": f"{tile.wm0}, {tile.wn0}, {tile.wk0}",
        "warp_tile1": f"{tile.wm1}, {tile.wn1}, {tile.wk1}",
    }


def element(key: Key) -> str:
    """The C++ type that names a key's data types."""
    word: str = spellings()["dtype"][key.dtype]["type"]
    return word


def arch_tag(arch_trait: str) -> str:
    return f"ck_tile::{arch_trait}_t"


def device_check(arch_trait: str) -> str:
    """The condition on ``device_name`` under which dispatch looks among an arch trait's kernels."""
    return f'device_name.compare(0, {len(arch_trait)}, "{arch_trait}") == 0'


def guard(key: Key) -> str:
    """The preprocessor condition of device code: the kernel's own arch trait."""
    return f"defined(__{key.arch_trait}__)"

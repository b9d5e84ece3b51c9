"""Read one kernel's configuration in the form of CK's dispatcher, or make it from a kernel of the matrix.

The file is JSON or YAML::

    arch: gfx950
    signature: {family: fwd, data_type: fp16, hdim_q: 128, hdim_v: 128, mask: no, ...}
    algorithm: {pipeline: qr, tile: [6 numbers], wave: [9], warp: [9], block_per_cu: -1, ...}

``tile`` is bm0 bn0 bk0 bn1 bk1 bk0max as in :class:`ckpm.matrix.keys.Tile`. In fwd_appendkv it is bs bsk bd bdv 0 0, in
bwd_dq_dk_dv bm0 bn0 bk0..bk4 bhdq bhdv. fwd_splitkv_combine has bn1 alone, the other backward families bm0, bn0.
``wave`` and ``warp`` are waves and warp tile along m, n, k of gemm 0, 1, 2. ``padding`` is seqlen_q, seqlen_k, hdim_q,
hdim_v (the last two of bwd_dq_dk_dv may be 8: to a multiple of 8).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckpm.base.bounded import LARGEST_TABLE, BoundsError, parse_json, read_text
from ckpm.base.errors import InputError, TableError, unknown_word
from ckpm.base.tablefile import Field, describe, load
from ckpm.matrix.configurations.limits import spellings
from ckpm.matrix.keys import Key, Tile, example_page

_REQUIRED = object()

# Field -> its path, the kind of its value ("word" is one of spellings()), and its default; None if the kernel's default
# is unknown.
_FORM: Mapping[str, tuple[str, str, Any]] = {
    "arch": ("arch", "word", _REQUIRED),
    "family": ("signature.family", "word", _REQUIRED),
    "dtype": ("signature.data_type", "word", _REQUIRED),
    "mode": ("signature.mode", "word", "batch"),
    "hdim_q": ("signature.hdim_q", "integer", _REQUIRED),
    "hdim_v": ("signature.hdim_v", "integer", _REQUIRED),
    "vlayout": ("signature.vlayout", "word", "r"),
    "mask": ("signature.mask", "word", _REQUIRED),
    "bias": ("signature.bias", "word", _REQUIRED),
    "logits": ("signature.logits", "flag", False),
    "lse": ("signature.lse", "flag", False),
    "dropout": ("signature.dropout", "flag", False),
    "qscale": ("signature.qscale", "word", "no"),
    "rope": ("signature.rope", "word", "no"),
    "sink": ("signature.sink", "flag", False),
    "skip": ("signature.skip_min_seqlen_q", "flag", False),
    "paged_kv": ("signature.paged_kv", "flag", False),
    "page_size": ("signature.page_size", "integer", 0),
    "kv_memory_layout": ("signature.kv_memory_layout", "word", None),
    "kv_lookup_table": ("signature.kv_lookup_table", "word", None),
    "pipeline": ("algorithm.pipeline", "word", _REQUIRED),
    "tile": ("algorithm.tile", "lengths", _REQUIRED),
    "wave": ("algorithm.wave", "lengths", _REQUIRED),
    "warp": ("algorithm.warp", "lengths", _REQUIRED),
    "padding": ("algorithm.padding", "padding", (True, True, True, True)),
    "block_per_cu": ("algorithm.block_per_cu", "integer", _REQUIRED),
    "num_wave_groups": ("algorithm.num_wave_groups", "integer", _REQUIRED),
    "selection_rank": ("algorithm.selection_rank", "integer", 0),
}
PATHS: Mapping[str, str] = {name: path for name, (path, _, _) in _FORM.items()}


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake in the form of a file: missing_field, unknown_field, wrong_type or unknown_word."""

    kind: str
    path: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration. ``values`` lacks the fields that are missing or mistaken in the file: rules skip them.

    ``lines`` has the line of each path of the file; it is empty for a kernel's configuration.
    """

    values: Mapping[str, Any]
    lines: Mapping[str, int]
    mistakes: tuple[Mistake, ...] = ()


def read_configuration(file: Path) -> Configuration:
    """The configuration of a file, with every mistake of its form. A file without a mapping is an InputError."""
    try:
        text = read_text(file, LARGEST_TABLE)
    except (OSError, ValueError) as error:
        raise InputError(f"{file}:1: the configuration can't be read: {error}.", kind="configuration") from error
    if file.suffix == ".json":
        try:
            parse_json(text)
        except json.JSONDecodeError as error:
            raise InputError(
                f"{file}:{error.lineno}: not valid JSON: {error.msg}. Fix that line.", kind="configuration"
            ) from error
        except BoundsError as error:
            raise InputError(f"{file}:1: not a configuration: {error}.", kind="configuration") from error
    try:
        root = load(file)
    except TableError as error:
        raise InputError(
            str(error).replace("the table is empty", "the configuration is empty"), kind="configuration"
        ) from error
    if {"variant", "families"} & root.value.keys():
        raise InputError(
            f"{file}:1: a sweep's kernels, not the configuration of one: run `ckpm sweep run {file}`.",
            kind="configuration",
        )
    return _read(root)


def _read(root: Field) -> Configuration:
    sections: dict[str, Mapping[str, Field] | None] = {"": root.value}
    mistakes = list(_strangers(root, ""))
    for name in ("signature", "algorithm"):
        field = root.value.get(name)
        sections[name] = field.value if field is not None and isinstance(field.value, dict) else None
        if field is None:
            mistakes.append(Mistake("missing_field", name, root.line, "is missing, with all its fields"))
        elif sections[name] is None:
            mistakes.append(_wrong(field, "a mapping of its fields"))
        else:
            mistakes += _strangers(field, name)
    values: dict[str, Any] = {}
    for name, (path, kind, default) in _FORM.items():
        section, _, leaf = path.rpartition(".")
        fields = sections[section]
        if fields is None:
            continue
        if leaf in fields:
            wrong = list(_check(name, kind, fields[leaf]))
            mistakes += wrong
            if not wrong:
                values[name] = _value(name, kind, fields[leaf])
        elif default is _REQUIRED:
            mistakes.append(
                Mistake("missing_field", path, root.value[section].line if section else root.line, "is missing")
            )
        else:
            values[name] = default
    return Configuration(values, dict(_lines(root)), tuple(sorted(mistakes, key=lambda mistake: mistake.line)))


def _strangers(section: Field, name: str) -> Iterator[Mistake]:
    """Yield the unknown fields: a mistyped field must not be ignored."""
    prefix = f"{name}." if name else ""
    names = [path.removeprefix(prefix).partition(".")[0] for path in PATHS.values() if path.startswith(prefix)]
    for word, field in section.value.items():
        if word not in names:
            yield Mistake("unknown_field", field.path, field.line, unknown_word("field", word, dict.fromkeys(names)))


def _check(name: str, kind: str, field: Field) -> Iterator[Mistake]:
    """Yield the mistakes in a value's kind or word."""
    value = field.value
    if kind == "word":
        allowed = spellings()[name]
        if not isinstance(value, str):
            yield _wrong(field, "a word")
        elif value not in allowed:
            yield Mistake("unknown_word", field.path, field.line, unknown_word(name, value, allowed))
    elif kind == "flag":
        if not isinstance(value, bool):
            yield _wrong(field, "true or false")
    elif kind == "integer":
        if not _is_integer(value):
            yield _wrong(field, "a whole number")
    elif not isinstance(value, list):
        yield _wrong(field, "a list")
    elif kind == "lengths":
        for item in value:
            if not _is_integer(item.value) or item.value < 0:
                yield _wrong(item, "a whole number from 0 on")
    else:
        if len(value) != 4:
            yield Mistake("wrong_type", field.path, field.line, f"must hold 4 paddings, not {len(value)}")
        for item in value:
            if not isinstance(item.value, bool) and item.value != 8:
                yield _wrong(item, "true, false or 8")


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _wrong(field: Field, what: str) -> Mistake:
    return Mistake("wrong_type", field.path, field.line, f"must be {what}, not {describe(field.value)}")


def _value(name: str, kind: str, field: Field) -> Any:
    if kind == "word":
        return spellings()[name][field.value]
    if kind in ("lengths", "padding"):
        return tuple(item.value for item in field.value)
    return field.value


def _lines(field: Field) -> Iterator[tuple[str, int]]:
    yield field.path, field.line
    for item in field.value.values() if isinstance(field.value, dict) else ():
        yield from _lines(item)
    for item in field.value if isinstance(field.value, list) else ():
        yield from _lines(item)


_SAME = ("dtype", "hdim_q", "hdim_v", "mode", "logits", "lse", "dropout")
_MASKS = {"causal": "top_left", "mask": "generic"}
_PIPELINES = {"fwd_appendkv": "appendkv", "bwd_dot_do_o": "bwd", "bwd_dq_dk_dv": "bwd", "bwd_convert_dq": "bwd"}
_PAGED = ("batch_prefill",)  # always over a paged cache
_THIRD_GEMM = ("bwd_dq_dk_dv",)  # has waves of its own
# the tile's lengths of a family's block, "" for a length that it doesn't have
_ATTENTION_BLOCK = ("bm0", "bn0", "bk0", "bn1", "bk1", "bk0max")
_BLOCKS: Mapping[str, tuple[str, ...]] = {
    "bwd_dq_dk_dv": ("bm0", "bn0", "bk0", "bk1", "bk2", "bk3", "bk4", "bhdq", "bhdv"),
    "fwd_appendkv": ("bs", "bsk", "bd", "bdv", "", ""),
}
_PADDING = re.compile("p(s(?!k))?(sk)?(d(?!v))?(dv)?")


def configuration_of(key: Key, arch: str) -> Configuration:
    """A kernel of the matrix as a configuration for one arch; lengths that its family doesn't have are 0.

    Batch prefill of a dialect without page sizes, layouts and tables has pages of one token, linear, in SGLang's table.
    """
    paged = key.family in _PAGED
    values: dict[str, Any] = {
        **{name: default for name, (_, _, default) in _FORM.items() if default is not _REQUIRED},
        **{name: getattr(key, name) for name in _SAME},
        "arch": arch,
        "family": key.family,
        "vlayout": key.vlayout[:1] or "r",
        "mask": _MASKS.get(key.mask, key.mask or "no"),
        "bias": key.bias or "no",
        "qscale": key.qscale or "no",
        "rope": key.rope or "no",
        "sink": bool(key.sink),
        "skip": bool(key.skip),
        "paged_kv": paged or bool(key.paged_kv),
        "page_size": example_page(key.page_size) if paged else 0,
        "kv_memory_layout": key.kv_layout or ("linear" if paged else None),
        "kv_lookup_table": key.kv_table or ("sglang" if paged else None),
        "pipeline": _PIPELINES.get(key.family, key.pipeline),
        "padding": _padding(key),
        "block_per_cu": key.tile.occupancy,
        "num_wave_groups": 1,
        **_lengths(key.family, key.tile),
    }
    return Configuration(values, {})


def _padding(key: Key) -> tuple[bool | int, ...]:
    if match := _PADDING.fullmatch(key.pad):
        return tuple(group is not None for group in match.groups())
    return (False, False, *({0: False, 1: True}.get(pad or 0, 8) for pad in (key.dpad, key.dvpad)))


def _lengths(family: str, tile: Tile) -> dict[str, tuple[int, ...]]:
    def pick(names: str) -> tuple[int, ...]:
        return tuple(getattr(tile, name) for name in names.split())

    warp = pick("wm0 wn0 wk0 wm1 wn1 wk1")
    third = family in _THIRD_GEMM  # its warp tiles are the first gemm's
    return {
        "tile": tuple(getattr(tile, name) if name else 0 for name in _BLOCKS.get(family, _ATTENTION_BLOCK)),
        "wave": (*pick("rm0 rn0 rk0 rm1 rn1 rk1"), *(pick("rm2 rn2 rk2") if third else (1, 1, 1))),
        "warp": (*warp, *(warp[:3] if third else (16, 16, 16))),
    }

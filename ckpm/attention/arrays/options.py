"""Options of a call: everything but Q, K and V."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from types import NoneType
from typing import Any, TypeVar

import numpy as np

from ckpm.attention.arrays.pytorch import namespace
from ckpm.attention.arrays.tables import Pages
from ckpm.attention.problems.validation import none_of
from ckpm.base.errors import ArgumentError, demand_type, did_you_mean
from ckpm.matrix.problems.problem import CHOICES, Dtype, Layout, Mask, tensor_dtypes

# Q, K, V and options of fmha, and functions that make them of a caller's tensors (or stand-ins) and numbers.
Posable = tuple[tuple[Any, Any, Any], dict[str, Any]]
Posing = Callable[[Sequence[Any], Any], Posable]

_PAGES = tuple(field.name for field in dataclasses.fields(Pages))
_WORD, _NUMBER, _SIZE, _FLAG = "a word", "a number", "a whole number", "True or False"
# Names, types and what to give. Arrays are checked where they are read, and sizes' ranges with the problem.
_KINDS: tuple[tuple[str, tuple[type, ...], str], ...] = (
    ("dtype", (str, NoneType), "the word of a dtype, such as 'bf16'"),
    ("family", (str,), _WORD),
    ("layout", (str,), "'BSHD' or 'BHSD'"),
    ("mask", (str,), "'no', 'top_left', 'bottom_right' or 'window'"),
    *((name, (int, NoneType), _SIZE) for name in ("max_seqlen_q", "max_seqlen_k")),
    *((name, (int,), _SIZE) for name in ("sink_size", "seed", "splits", "split_keys")),
    *((name, (float, int, Real), _NUMBER) for name in ("dropout", "soft_cap")),
    ("scale", (float, int, Real), "a number, or leave it out for 1 / sqrt(head dim)"),
    *((name, (bool,), _FLAG) for name in ("random_values", "lse", "batch_invariant")),
    ("pages", (Pages, NoneType), "ckpm.Pages"),
    ("window", (tuple, list, NoneType), "(left, right), -1 for an open side"),
    ("descales", (tuple, list, NoneType), "the three factors of Q, K and V"),
)
_read_pages = operator.attrgetter(*_PAGES)
T = TypeVar("T")
CAUSAL = ("top_left", "bottom_right")  # masks that are causal without a window


# names of options in FlashAttention, FlashInfer, vLLM, SGLang and PyTorch, with what to give here
_ELSEWHERE = {
    **dict.fromkeys(("softmax_scale", "sm_scale", "attn_scale"), "scale"),
    **dict.fromkeys(("softcap", "logits_soft_cap", "logit_cap"), "soft_cap"),
    **dict.fromkeys(("window_size", "window_left", "sliding_window"), "mask='bottom_right' and window=(left, right)"),
    **dict.fromkeys(("dropout_p", "p_drop"), "dropout"),
    **dict.fromkeys(("return_lse", "return_softmax_lse"), "lse=True"),
    **dict.fromkeys(("attn_mask", "attn_bias"), "bias"),
    **dict.fromkeys(("q_descale", "k_descale", "v_descale"), "descales=(of Q, of K, of V)"),
    **dict.fromkeys(("block_table", "block_tables", "page_table", "kv_indices"), "pages=ckpm.Pages(...)"),
    **dict.fromkeys(("max_seqlens_q", "max_query_len"), "max_seqlen_q"),
    "causal": "mask='bottom_right', or 'top_left'",
    "is_causal": "mask='top_left'",
    "num_splits": "splits",
    "sinks": "sink_logits",
}


# parameters of fmha beside the options
_OF_FMHA = ("q", "k", "v", "dispatcher", "out", "lse_out", "stream", "timing")


def refuse_unknown(options: Iterable[str], names: Sequence[str]) -> None:
    """Raise the TypeError for an option that is none of ``names``, with the nearest, or another library's own."""
    for option in options:
        if option not in names:
            hint = f"; give {_ELSEWHERE[option]}." if option in _ELSEWHERE else did_you_mean(option, names)
            raise TypeError(f"there is no option '{option}'{hint} Options: {', '.join(names)}.")


def _name_unknown(options: type[T]) -> type[T]:
    """Let the TypeError of a record of options be that of :func:`refuse_unknown`."""
    plain = options.__init__
    names = [field.name for field in dataclasses.fields(options)]  # type: ignore[arg-type]
    choices = {*names}

    @functools.wraps(plain)
    def read(self: T, **values: Any) -> None:
        if unknown := values.keys() - choices:
            refuse_unknown(unknown, (*names, *_OF_FMHA))
        plain(self, **values)

    options.__init__ = read  # type: ignore[method-assign, assignment]
    return options


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharedOptions:
    """The options that the forward and the backward pass share."""

    dtype: Dtype | None = None
    layout: Layout = "BSHD"
    cu_seqlens_q: Any = None
    cu_seqlens_k: Any = None
    max_seqlen_q: int | None = None
    max_seqlen_k: int | None = None
    pages: Pages | None = None
    mask: Mask = "no"
    window: tuple[int, int] | None = None
    sink_size: int = 0
    sink_logits: Any = None
    bias: Any = None
    alibi_slopes: Any = None
    dropout: float = 0.0
    seed: int = 0
    random_values: bool = False
    soft_cap: float = 0.0
    scale: float = 0.0
    descales: tuple[Any, Any, Any] | None = None
    kv_block_descale: Any = None
    splits: int = 0
    split_keys: int = 0
    batch_invariant: bool = False


@_name_unknown
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Options(SharedOptions):
    """Options of a call.

    ``dtype`` is the kernel's: fp16, bf16, fp32 or fp8bf16; with fp8 K and V fp16kvfp8 or bf16kvfp8. It is needed if the
    dtypes of Q and K don't determine it. Floats are then encoded.

    ``family`` is fwd by default, fwd_splitkv with ``splits``, batch_prefill with ``pages``. fwd_pagedkv has to be
    named. With ``cu_seqlens_q`` and, without pages, ``cu_seqlens_k`` [batch + 1], int32, sequences of several lengths
    come one after another. If these sums are on the device, ``max_seqlen_q`` and ``max_seqlen_k`` are needed.

    ``layout`` is BSHD or BHSD, ``mask`` no, top_left, bottom_right or window, and ``scale`` by default 1 / sqrt(dim).
    ``window`` is (left, right) of CK's masks, -1 unbounded. Without it top_left and bottom_right are causal.
    ``sink_size`` leading keys are seen beside a window, by queries whose number is below that of the keys.
    ``sink_logits`` [head] count in the denominator. ``bias`` is [batch, head, query, key] or [head, token, key].
    ``alibi_slopes`` are [head] or [batch, head]: -slope * distance is added to scores.

    ``dropout`` is a probability. Its random bytes are returned with ``random_values``. ``descales`` are the factors of
    Q, K and V in fp8, 1 by default. With ``kv_block_descale`` [page, head, 2] K and V have a factor for each page and
    head. With fp8 K and V and a Q of 16 bits, Q's factor is None, and K's and V's may be [head] of K.

    ``split_keys`` is the number of keys that one workgroup takes from pages. By default the dispatcher chooses it.
    ``splits`` is the number of splits of contiguous keys.

    ``batch_invariant`` takes the same kernel whatever else is in the batch, or refuses the call.
    """

    family: str = ""
    lse: bool = False

    def __post_init__(self) -> None:
        """Refuse values of another type than their option's, unknown words, and options that nothing reads."""
        for name, kinds, wanted in _KINDS:
            if not isinstance(value := getattr(self, name), kinds):
                demand_type(name, value, kinds, wanted)
        if self.pages is not None:
            demand_type("pages.kv_layout", self.pages.kv_layout, str, _WORD)
            demand_type("pages.longest", self.pages.longest, (int, NoneType), "the keys of the longest sequence")
            if len(np.shape(self.pages.indices)) not in (1, 2):
                raise ArgumentError("pages.indices are page numbers: give [entry], or [batch, entry].", kind="shape")
        for name, values, length in (("window", self.window, 2), ("descales", self.descales, 3)):
            if values is not None and len(values) != length:
                raise ArgumentError(f"{name} has {len(values)} values: give {length}.", kind="type")
        for side in self.window or ():
            demand_type("a side of window", side, int, "a whole number, -1 for an open side")
        chosen = {"family": self.of_family, "layout": self.layout, "mask": self.mask}
        if self.pages is not None:
            chosen["kv_layout"] = self.pages.kv_layout
        for name, word in chosen.items():  # before checks that depend on a word
            if word not in CHOICES[name]:
                raise ArgumentError(none_of(name, word, CHOICES[name]), kind=name)
        for name, value, instead in self._unread():
            if value is not None:
                raise ArgumentError(f"{name} is not read {instead}.", kind="contradiction")

    def _unread(self) -> Iterator[tuple[str, Any, str]]:
        """Names and values of options that no kernel reads beside the others, each with what to give instead."""
        pages = self.pages
        if pages is not None:
            yield "max_seqlen_k", self.max_seqlen_k, "beside pages: give Pages(longest=...)"
            if self.of_family == "batch_prefill":
                yield "cu_seqlens_k", self.cu_seqlens_k, "beside pages, which have the lengths"
            if len(np.shape(pages.indices)) == 1:
                yield "pages.seqlens_k", pages.seqlens_k, "beside a list: give indptr and last_page_lens"
            else:
                yield "pages.indptr", pages.indptr, "beside a table of [batch, entry]: give seqlens_k"
                yield "pages.last_page_lens", pages.last_page_lens, "beside a table of [batch, entry]: give seqlens_k"
        if self.cu_seqlens_q is None:
            for name in ("cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"):
                yield name, getattr(self, name), "without cu_seqlens_q: all sequences have the length of their axis"
        if self.bias is not None:
            yield "alibi_slopes", self.alibi_slopes, "beside a bias: add the slopes to it"
        if self.descales is None:
            yield "kv_block_descale", self.kv_block_descale, "without descales=(factor of Q, None, None)"

    @property
    def of_family(self) -> str:
        return self.family or ("fwd_splitkv" if self.splits else "batch_prefill" if self.pages is not None else "fwd")

    def features(self) -> dict[str, Any]:
        """Fields of the problem that the options set."""
        left, right = self.window if self.window is not None else (-1, 0 if self.mask in CAUSAL else -1)
        fields: dict[str, Any] = {
            "mask": self.mask, "window_left": left, "window_right": right, "sink_size": self.sink_size,
            "sink_logits": self.sink_logits is not None, "p_drop": self.dropout, "dropout_seed": self.seed,
            "store_randval": self.random_values, "logits_soft_cap": self.soft_cap, "scale": self.scale,
            "lse": self.lse, "splits": self.splits, "split_keys": self.split_keys,
            "batch_invariant": self.batch_invariant,
        }  # fmt: skip
        if self.bias is not None:
            fields["bias"] = "bias"
        elif self.alibi_slopes is not None:
            fields |= {"bias": "alibi", "alibi_per_batch": len(np.shape(self.alibi_slopes)) == 2}
        if self.descales is not None:
            fields["qscale"] = "pertensor" if self.kv_block_descale is None else "kv_blockscale"
            if self.of_family != "batch_prefill":
                fields["descales"] = tuple(read_number("descales", scale) for scale in self.descales)
        return fields

    def more(self, dtype: str) -> Mapping[str, tuple[Any, str]]:
        """Inputs besides Q, K, V and tables, by the C ABI's names, with the dtypes of their elements."""
        inputs: dict[str, tuple[Any, str]] = {"sink": (self.sink_logits, "fp32")}
        if self.bias is not None:
            inputs["bias"] = self.bias, "fp32" if dtype == "fp8bf16" else tensor_dtypes(dtype)[0]
        else:
            inputs["bias"] = self.alibi_slopes, "fp32"
        if self.descales is not None and self.of_family == "batch_prefill":
            of_q, of_k, of_v = self.descales
            if self.kv_block_descale is not None:
                of_k = of_v = self.kv_block_descale
            inputs |= {"q_descale": (of_q, "fp32"), "k_descale": (of_k, "fp32"), "v_descale": (of_v, "fp32")}
        return {name: (array, word) for name, (array, word) in inputs.items() if array is not None}


def read_number(name: str, value: Any) -> float:
    """A number, or the number of an array of one."""
    try:
        return float(value.item() if hasattr(value, "item") else value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError(f"{name} must be a number: {error}.", kind="type") from error


def as_given(arrays: Sequence[Any], options: dict[str, Any]) -> Posable:
    q, k, v = arrays
    return (q, k, v), options


class _TensorHere:
    """Marks a tensor's place among numbers."""


def take_apart(q: Any, k: Any, v: Any, options: Mapping[str, Any]) -> tuple[list[Any], tuple[Any, ...]]:
    """The tensors of a call of PyTorch, and the rest, of which :func:`put_together` makes the call again."""
    tensors, rest, tensor = [q, k, v], list[Any](), namespace(q).Tensor
    for name, value in options.items():
        kind = value.__class__
        parts = _read_pages(value) if kind is Pages else value if kind is tuple else (value,)
        rest += name, kind if kind is Pages or kind is tuple else None, len(parts)
        for part in parts:
            if isinstance(part, tensor):
                tensors.append(part)
                rest.append(_TensorHere)
            else:
                rest.append(part)
    return tensors, tuple(rest)


def put_together(tensors: Sequence[Any], rest: Sequence[Any]) -> Posable:
    """Reverse :func:`take_apart`."""
    q, k, v, *leaves = tensors
    others, parts, options = iter(leaves), iter(rest), dict[str, Any]()
    for name, kind, count in zip(parts, parts, parts, strict=False):
        values = [next(others) if part is _TensorHere else part for part in itertools.islice(parts, count)]
        if kind is Pages:
            options[name] = Pages(**dict(zip(_PAGES, values, strict=True)))
        else:
            options[name] = tuple(values) if kind is tuple else values[0]
    return (q, k, v), options


def is_plain(value: Any) -> bool:
    """True for values that are equal to no other object: numbers, words, None, classes, and tuples of them."""
    if isinstance(value, tuple):
        return all(map(is_plain, value))
    return value is None or isinstance(value, str | Real | type)

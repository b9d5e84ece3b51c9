"""K and V pools as writes: tokens drawn, encoded, put into their pages in the problem's layout, poison around them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.launch.encodings import Bits, Floats, bits_type, decode, encode, nan_bits
from ckpm.attention.launch.page_tables import PageTable, shares_pages
from ckpm.matrix.problems.case import SuiteCase

_PEAK = 48.0  # squared, over the root of a head dim of 128: 203


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes to be copied to a place of a buffer before the launch."""

    offset: int
    data: NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """Device memory. ``fill`` is a byte for all of it before the writes (outputs only; pools are too large).

    ``placement`` is a SuiteCase's. With ``guard`` the memory after the last byte is unmapped. A ``sparse`` buffer is
    mapped only where it is written; each write has memory pages of its own.
    """

    size: int
    writes: tuple[Write, ...] = ()
    fill: int | None = None
    placement: str = "default"
    guard: bool = False
    sparse: bool = False


def stream(p: SuiteCase, *what: int) -> np.random.Generator:
    """A random stream for one part of the problem, independent of its other streams."""
    return np.random.default_rng([p.seed, *what])


def add_peaks(tokens: Floats) -> None:
    """Add a peak to each token i of Q or K [token, head, dim], at dim i modulo the head dim.

    A query then has a score of some 200 at every key with its own peak, and at most 20 elsewhere. A float32 can't
    represent exp() of the difference.
    """
    count = np.arange(len(tokens))
    tokens[count, :, count % tokens.shape[-1]] += _PEAK


def range_descale(p: SuiteCase, drawn: tuple[float, float], largest: float) -> float:
    """The float32 scale that maps the largest number of a tensor of this range to ``largest``."""
    return float(np.float32((max(-drawn[0], drawn[1]) + _PEAK * (p.values == "peaks")) / largest))


class KvPool:
    """K and V in their pages. ``k`` and ``v`` contain each sequence's tokens as the kernel should see them."""

    def __init__(self, p: SuiteCase, arch: str, table: PageTable) -> None:
        self.problem, self.arch, self.table = p, arch, table
        self.pages: dict[str, dict[int, Bits]] = {"k": {}, "v": {}}  # page -> bits [slot, head, dim]
        self.k: list[Floats] = []
        self.v: list[Floats] = []
        self.base_descale = range_descale(p, p.kv_range, 112)
        # page -> its position in its sequence
        self.positions = {int(page): position for pages in table.pages for position, page in enumerate(pages)}
        for index, pages in enumerate(table.pages):
            for number, (tensor, hdim) in enumerate((("k", p.hdim_q), ("v", p.hdim_v))):
                tokens = self._fill_pages(index, pages, number, tensor, hdim)
                (self.k if tensor == "k" else self.v).append(tokens)

    def _fill_pages(self, index: int, pages: NDArray[np.int64], number: int, tensor: str, hdim: int) -> Floats:
        """Draw a sequence's tokens, put their bits into its pages, and return the numbers of the bits."""
        p, length = self.problem, self.problem.seqlens_k[index]
        if tensor == "v" and p.storage == "latent":
            self.pages["v"].update({page: self.pages["k"][page][..., :hdim] for page in pages.tolist()})
            own = self.descales(pages, "v") / self.descales(pages, "k")
            return self.k[index][..., :hdim] * np.repeat(own, p.page_size, 0)[:length, :, None]
        shape = (len(pages), p.page_size, p.nhead_k, hdim)
        if shares_pages(p):  # content belongs to the page, whoever names it
            drawn = np.array([stream(p, 4 + number, page).uniform(*p.kv_range, shape[1:]) for page in pages.tolist()])
            drawn = drawn.reshape(shape)
        else:
            drawn = np.zeros((len(pages) * p.page_size, *shape[2:]))
            drawn[:length] = stream(p, 2 + number, p.ids[index]).uniform(*p.kv_range, (length, *shape[2:]))
            if p.values == "peaks" and tensor == "k":
                add_peaks(drawn[:length])
            drawn = drawn.reshape(shape)
        if p.values == "page_number" and tensor == "v":  # multiples of 1/256 up to 1: exact in bf16 and fp16
            drawn[:] = ((pages * 37 % 251 + 1) / 256)[:, None, None, None]
        factors = self._factors(pages, tensor)
        if factors is not None:
            drawn *= np.where(factors == 0, 1, factors)[:, None, None, None]  # a scale of 0 hides numbers
        descale = self.descales(pages, tensor)[:, None, :, None]
        bits = encode(drawn / np.where(descale == 0, self.base_descale, descale), p.kv_dtype, self.arch)
        tokens: Floats = (decode(bits, p.kv_dtype, self.arch) * descale).reshape(-1, *shape[2:])[:length]
        if "nan_slack" in p.checks and not shares_pages(p):
            bits.reshape(-1, *shape[2:])[length:] = nan_bits(p.kv_dtype, self.arch)
        self.pages[tensor].update(zip(pages.tolist(), bits, strict=True))
        return tokens

    def descales(self, pages: NDArray[np.int64], tensor: str) -> Floats:
        """Factors of the stored numbers, as [page, head]."""
        p = self.problem
        if p.qscale == "perhead":
            return np.broadcast_to(self._head_scales(tensor).astype(np.float64), (len(pages), p.nhead_k))
        if p.qscale != "kv_blockscale":
            return np.full((len(pages), p.nhead_k), 1.0 if p.qscale == "no" else self.base_descale)
        factors = self._factors(pages, tensor)
        own = pages * (7 if tensor == "k" else 5) if factors is None else np.zeros_like(pages)
        step = (own[:, None] + np.arange(p.nhead_k) * 3) % 8
        scales = np.float32(self.base_descale) * (1 + step / 8).astype(np.float32)
        if factors is not None:
            scales *= factors[:, None].astype(np.float32)
        return scales.astype(np.float64)

    def _head_scales(self, tensor: str) -> NDArray[np.float32]:
        """The scales of K's or V's heads, 8 different ones in turn."""
        own = np.arange(self.problem.nhead_k) * (3 if tensor == "k" else 5) + (tensor == "v")
        return np.float32(self.base_descale) * (1 + own % 8 / 8).astype(np.float32)

    def _factors(self, pages: NDArray[np.int64], tensor: str) -> Floats | None:
        """The problem's scales of pages, by each page's position in its sequence; None without."""
        scales = self.problem.k_page_scales if tensor == "k" else self.problem.v_page_scales
        if not scales:
            return None
        return np.array([scales[self.positions[page] % len(scales)] for page in pages.tolist()])

    def pointers(self) -> dict[str, tuple[str, int]]:
        p = self.problem
        rows = {"interleaved": p.page_size * p.nhead_k, "packed": 1}.get(p.storage, 0)  # of K before V's in one pool
        places = {"k": ("k", 0), "v": ("k" if p.storage == "latent" else "v", 0)}
        if rows:
            places = {"k": ("kv", 0), "v": ("kv", rows * p.hdim_q * p.element_bytes)}
        if p.qscale in ("pertensor", "perhead"):
            places |= {"k_descale": ("k_descale", 0), "v_descale": ("v_descale", 0)}
        elif p.qscale == "kv_blockscale":
            places |= {"k_descale": ("kv_descale", 0), "v_descale": ("kv_descale", 4)}
        return places

    def buffers(self, guard: bool) -> dict[str, Buffer]:
        p = self.problem
        buffers: dict[str, Buffer] = {}
        writes: dict[str, list[Write]] = {}
        for tensor, (name, offset) in self.pointers().items():
            if tensor not in ("k", "v"):
                continue
            if tensor == "v" and p.vlayout == "col":
                data = self._columns()
                buffers["v"] = Buffer(size=data.nbytes, writes=(Write(0, data),), placement=p.placement, guard=guard)
                continue
            if tensor == "v" and p.storage in ("packed", "latent"):
                continue  # it lies beside K or in it
            stride = p.page_elements(tensor) * p.element_bytes
            blocks = {page: self._block(bits, tensor) for page, bits in self._pages_of(tensor).items()}
            blocks |= dict.fromkeys(self._poisoned_pages(), self._block(self._nan_page(tensor), tensor))
            if p.table_end == "zeros" and 0 not in self.pages[tensor]:
                blocks[0] = self._block(np.zeros_like(self._nan_page(tensor)), tensor)
            writes.setdefault(name, []).extend(runs(blocks, stride, offset))
            buffers[name] = Buffer(
                size=self.table.pool_pages * stride,
                writes=tuple(writes[name]),
                placement=p.placement,
                guard=guard,
                sparse="freed_pages" in p.checks,
            )
        if p.qscale in ("pertensor", "perhead"):
            for tensor in ("k", "v"):
                tensor_scale = np.array([self.base_descale], np.float32)
                scales = self._head_scales(tensor) if p.qscale == "perhead" else tensor_scale
                buffers[f"{tensor}_descale"] = Buffer(size=scales.nbytes, writes=(Write(0, scales),), guard=guard)
        elif p.qscale == "kv_blockscale":
            pages = np.array(sorted(self.pages["k"]), np.int64)
            both = np.stack([self.descales(pages, "k"), self.descales(pages, "v")], axis=-1).astype(np.float32)
            blocks = dict(zip(pages.tolist(), both.reshape(len(pages), 2 * p.nhead_k), strict=True))
            size = 8 * p.nhead_k
            buffers["kv_descale"] = Buffer(
                size=self.table.pool_pages * size, writes=tuple(runs(blocks, size, 0)), guard=guard
            )
        return buffers

    def _pages_of(self, tensor: str) -> dict[int, Bits]:
        """Bits [slot, head, dim] by page. With packed storage each token has its K and V together."""
        pages = self.pages[tensor]
        if self.problem.storage != "packed":
            return pages
        return {page: np.concatenate((bits, self.pages["v"][page]), axis=-1) for page, bits in pages.items()}

    def _block(self, bits: Bits, tensor: str) -> Bits:
        """A page's bits in memory order, gaps included."""
        p = self.problem
        slots, heads, hdim = bits.shape
        if p.heads_first:
            block = bits.swapaxes(0, 1)
        elif p.kv_layout == "vectorized":
            if tensor == "k":
                block = bits.reshape(slots, heads, hdim // p.vector, p.vector).transpose(1, 2, 0, 3)
            else:
                block = bits.reshape(slots // p.vector, p.vector, heads, hdim).transpose(2, 0, 3, 1)
        elif p.storage == "gaps":
            block = np.full((slots, heads, 2 * hdim), nan_bits(p.kv_dtype, self.arch), bits.dtype)
            block[..., :hdim] = bits
        else:
            block = bits
        flat = block.reshape(-1)
        if p.storage == "gaps" and p.kv_layout == "vectorized":
            flat = np.concatenate((flat, np.full(flat.size, nan_bits(p.kv_dtype, self.arch), bits.dtype)))
        return flat

    def _columns(self) -> Bits:
        """V column-major: [head, dim, token of the pool]."""
        p = self.problem
        data = np.full(
            (p.nhead_k, p.hdim_v, self.table.pool_pages), nan_bits(p.kv_dtype, self.arch), bits_type(p.kv_dtype)
        )
        if p.table_end == "zeros":
            data[:, :, 0] = 0
        for page, bits in self.pages["v"].items():
            data[:, :, page] = bits[0]
        return data

    def _nan_page(self, tensor: str) -> Bits:
        p = self.problem
        shape = (p.page_size, p.nhead_k, p.row_elements(tensor))
        return np.full(shape, nan_bits(p.kv_dtype, self.arch), bits_type(p.kv_dtype))

    def _poisoned_pages(self) -> set[int]:
        """Pages full of NaN: all unreferenced pages of a small pool, the neighbours of used pages in a large one."""
        used, last = set(self.pages["k"]), self.table.pool_pages - 1
        candidates = set() if self.table.nan_page is None else {self.table.nan_page}
        if "nan_canary" in self.problem.checks:
            near = {page + step for page in used for step in (-1, 1)} | {0, last}
            candidates |= set(range(last + 1)) if last < 4096 else {page for page in near if 0 <= page <= last}
        if self.problem.table_end == "zeros":
            candidates.discard(0)
        return candidates - used


def runs(blocks: Mapping[int, Bits], stride: int, offset: int) -> list[Write]:
    """Writes of pages. Adjacent pages that fill their stride are one write."""
    writes: list[Write] = []
    numbers = sorted(blocks)
    start = 0
    for index, page in enumerate(numbers):
        whole = blocks[page].nbytes == stride
        if index + 1 == len(numbers) or numbers[index + 1] != page + 1 or not whole:
            data = np.concatenate([blocks[number] for number in numbers[start : index + 1]])
            writes.append(Write(offset + numbers[start] * stride, data))
            start = index + 1
    return writes

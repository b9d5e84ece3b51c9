"""FlashInfer's ``use_cuda_graph``: tables at fixed addresses.

So a captured launch reads the tables of the latest plan.
"""

from __future__ import annotations

from typing import Any

from ckpm.attention.arrays.pytorch import padded_list
from ckpm.attention.arrays.tables import Pages
from ckpm.attention.callers.tensors import demand_values, read_on_host
from ckpm.base.errors import ArgumentError, ProblemError


class FixedTables:
    """The tables of a wrapper's plans, in the buffers of its caller.

    A captured launch keeps its grid and its problem. So all launches have the limits of the first plan and of the
    buffers. A sequence may have all query tokens of the first plan, and all pages of the page list.
    """

    def __init__(self, qo_indptr: Any, indptr: Any, indices: Any, last_page_lens: Any) -> None:
        """Keep the buffers. All four must be given, of one batch."""
        named = {
            "qo_indptr_buf": qo_indptr, "paged_kv_indptr_buf": indptr, "paged_kv_indices_buf": indices,
            "paged_kv_last_page_len_buf": last_page_lens,
        }  # fmt: skip
        if missing := [name for name, buffer in named.items() if buffer is None]:
            raise ArgumentError(f"use_cuda_graph=True comes with {', '.join(missing)}.", kind="null")
        demand_values(**named)
        self._batch, self._rows = len(qo_indptr) - 1, 0
        if (len(indptr) - 1, len(last_page_lens)) != (self._batch, self._batch):
            raise ArgumentError(
                f"qo_indptr_buf and paged_kv_indptr_buf are of batch + 1, paged_kv_last_page_len_buf of batch, and "
                f"their lengths are {len(qo_indptr)}, {len(indptr)}, {len(last_page_lens)}.",
                kind="shape",
            )
        self._qo_indptr, self._indptr, self._last_page_lens = qo_indptr, indptr, last_page_lens
        self._indices = padded_list(indices)

    def write(self, qo_indptr: Any, indptr: Any, indices: Any, last_page_lens: Any) -> None:
        """Copy a plan's tables into the buffers.

        Refuse another batch than the buffers', more query tokens than the first plan's, and more pages than the buffer
        holds.
        """
        demand_values(paged_kv_indptr=indptr, paged_kv_indices=indices, paged_kv_last_page_len=last_page_lens)
        rows = int(read_on_host(qo_indptr)[-1])
        for name, count, most, limit in (
            ("sequences", len(qo_indptr) - 1, "exactly", self._batch),
            ("sequences in paged_kv_indptr", len(indptr) - 1, "exactly", self._batch),
            ("last pages", len(last_page_lens), "exactly", self._batch),
            ("query tokens", rows, "at most", self._rows or rows),
            ("pages", len(indices), "at most", len(self._indices)),
        ):
            if count > limit or (most == "exactly" and count != limit):
                raise ProblemError(f"{count} {name}: with use_cuda_graph this wrapper's plans have {most} {limit}.")
        self._rows = self._rows or rows  # of the first plan that fits
        for buffer, table in (
            (self._qo_indptr, qo_indptr),
            (self._indptr, indptr),
            (self._indices[: len(indices)], indices),
            (self._last_page_lens, last_page_lens),
        ):
            buffer[:] = table
        self._indices[len(indices) :] = 0  # kernels read ahead of the last page

    def options(self, page_size: int) -> dict[str, Any]:
        """Options of ``fmha`` with these tables."""
        pages = Pages(
            indices=self._indices,
            indptr=self._indptr,
            last_page_lens=self._last_page_lens if page_size > 1 else None,
            longest=len(self._indices) * page_size,
        )
        return {"cu_seqlens_q": self._qo_indptr, "max_seqlen_q": self._rows, "pages": pages}

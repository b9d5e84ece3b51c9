"""Memory contains the numbers that the reference computes with: layouts round-trip by strides, pools stay sparse."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpm.attention.launch.buffers import Prepared, prepare, read
from ckpm.attention.launch.encodings import bits_type, decode, encode, nan_bits
from ckpm.attention.launch.kv_pool import Buffer, Write
from ckpm.attention.launch.page_tables import LINES, page_table
from ckpm.base.errors import ProblemError
from ckpm.kernels import abi
from ckpm.matrix.problems.case import SUITES, complaint, counterpart
from ckpm.matrix.problems.tables import problems
from tests.unit.attention.fakes import make_case


def gather(prepared: Prepared, tensor: str) -> tuple[np.ndarray, ...]:
    """K or V of each sequence read from the writes as a kernel reads memory: table, strides, layout, descales."""
    p, f = prepared.problem, {name: v for name, v in prepared.fields.items() if isinstance(v, int)}
    hdim = p.hdim_q if tensor == "k" else p.hdim_v
    name, base = prepared.pointers[tensor]
    rows = []
    for sequence, length in enumerate(p.seqlens_k):
        token, head, dim = np.ix_(np.arange(length), np.arange(p.nhead_k), np.arange(hdim))
        page, slot = _entries(prepared, sequence)[token // p.page_size], token % p.page_size
        assert not length or (page.min() >= 0 and page.max() < f["num_total_pages"])
        offset = page * f[f"batch_stride_{tensor}"] + head * f[f"nhead_stride_{tensor}"]
        if p.kv_layout == "vectorized" and tensor == "k":
            offset = offset + dim // p.vector * (p.page_size * p.vector) + slot * f["stride_k"] + dim % p.vector
        elif p.kv_layout == "vectorized":
            offset = offset + slot // p.vector * (f["stride_v"] * p.vector) + dim * p.vector + slot % p.vector
        elif tensor == "v" and p.vlayout == "col":
            offset = offset + dim * f["stride_v"]
        else:
            offset = offset + slot * f[f"stride_{tensor}"] + dim
        bits = read(prepared.buffers[name], base + offset * p.element_bytes, bits_type(p.kv_dtype))
        rows.append(decode(bits, p.kv_dtype, prepared.arch) * _descale(prepared, tensor, page, head))
    return tuple(rows)


def _entries(prepared: Prepared, sequence: int) -> np.ndarray:
    """A sequence's page numbers, from the table's bytes."""
    p = prepared.problem
    table = _whole(prepared.buffers["kv_page_indices"], np.int32).astype(np.int64)
    if p.kv_table == "vllm":
        row: np.ndarray = table.reshape(p.batch, -1)[sequence]
        return row
    begin, end = _whole(prepared.buffers["kv_indptr"], np.int32)[sequence : sequence + 2]
    return table[begin:end]


def _descale(prepared: Prepared, tensor: str, page: np.ndarray, head: np.ndarray) -> Any:
    p = prepared.problem
    if p.qscale == "no":
        return 1.0
    name, base = prepared.pointers[f"{tensor}_descale"]
    if p.qscale == "pertensor":
        page, head = page * 0, head * 0
    strides = [int(prepared.fields.get(f"{what}_stride_kv_descale", 0)) for what in ("block", "nhead")]
    return read(prepared.buffers[name], base + 4 * (page * strides[0] + head * strides[1]), np.float32)


def _whole(buffer: Buffer, kind: Any) -> np.ndarray:
    return buffer.writes[0].data.reshape(-1).view(kind)


def agrees(prepared: Prepared) -> bool:
    pairs = [(gather(prepared, "k"), prepared.inputs.k), (gather(prepared, "v"), prepared.inputs.v)]
    return all(np.array_equal(a, b) for got, want in pairs for a, b in zip(got, want, strict=True))


def test_bf16_every_number_and_every_tie() -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    numbers = decode(every, "bf16", "gfx950")
    real = ~np.isnan(numbers)
    assert np.array_equal(encode(numbers[real], "bf16", "gfx950"), every[real])
    assert np.isnan(decode(encode(numbers[~real], "bf16", "gfx950"), "bf16", "gfx950")).all()
    start = np.uint32(0x3F800000)  # the oracle is integer arithmetic on float32 bits, written out for one binade
    for bits in range(int(start), int(start) + (1 << 17), 1 << 9):
        low, rest = bits >> 16, bits & 0xFFFF
        want = low + (rest > 0x8000 or (rest == 0x8000 and low & 1))
        value = struct.unpack("<f", struct.pack("<I", bits))[0]
        assert encode(np.array([value]), "bf16", "gfx950")[0] == want
    assert encode(np.array([3.4e38, -1e39]), "bf16", "gfx950")[1] == 0xFF80


@pytest.mark.parametrize(
    ("arch", "largest", "smallest", "count", "nan"),
    [("gfx950", 448.0, 2.0**-9, 254, 0x7F), ("gfx942", 240.0, 2.0**-10, 255, 0x80)],
    ids=["ocp", "fnuz"],
)
def test_fp8_every_byte_and_nearest_of_all(arch: str, largest: float, smallest: float, count: int, nan: int) -> None:
    numbers = decode(np.arange(256, dtype=np.uint8), "fp8", arch)
    real = np.flatnonzero(~np.isnan(numbers))
    assert len(real) == count
    assert numbers[real].max() == largest
    assert numbers[real][numbers[real] > 0].min() == smallest
    back = encode(numbers[real], "fp8", arch)
    assert np.array_equal(decode(back, "fp8", arch), numbers[real])
    values = np.random.default_rng(0).uniform(-1, 1, 2000) * 2.0 ** np.random.default_rng(1).integers(-12, 11, 2000)
    near = np.abs(numbers[real][None, :] - values[:, None]).min(axis=1)  # brute force over all bytes
    assert np.array_equal(np.abs(decode(encode(values, "fp8", arch), "fp8", arch) - values), near)
    positive = np.sort(numbers[real][numbers[real] >= 0])
    middles = (positive[1:] + positive[:-1]) / 2
    assert not (encode(middles, "fp8", arch) & 1).any()  # ties go to the even byte
    assert decode(encode(np.array([1e9, -1e9]), "fp8", arch), "fp8", arch).tolist() == [largest, -largest]
    assert encode(np.array([np.nan]), "fp8", arch)[0] == nan


def test_known_encodings() -> None:
    assert encode(np.array([1.0, -2.0, 0.0]), "bf16", "gfx950").tolist() == [0x3F80, 0xC000, 0]
    assert encode(np.array([1.0, -2.0, 65504.0]), "fp16", "gfx950").tolist() == [0x3C00, 0xC000, 0x7BFF]
    assert encode(np.array([1.0, 448.0]), "fp8bf16", "gfx950").tolist() == [0x38, 0x7E]
    assert encode(np.array([1.0, 448.0, -0.0]), "fp8bf16", "gfx942").tolist() == [0x40, 0x7F, 0]
    for dtype in ("bf16", "fp16", "fp8bf16", "fp32"):
        bits = encode(np.array([1.5]), dtype, "gfx950")
        assert decode(bits, dtype, "gfx950")[0] == 1.5
        assert np.isnan(decode(np.array([nan_bits(dtype, "gfx942")], bits.dtype), dtype, "gfx942")[0])


@given(
    dtype=st.sampled_from(["bf16", "fp16", "fp8bf16", "bf16kvfp8", "fp16kvfp8"]),
    arch=st.sampled_from(["gfx942", "gfx950"]),
    page_size=st.sampled_from([1, 16, 32, 48]),
    kv_layout=st.sampled_from(["linear", "vectorized"]),
    kv_table=st.sampled_from(["sglang", "vllm"]),
    storage=st.sampled_from(["separate", "interleaved", "gaps", "heads_first", "packed"]),
    page_order=st.sampled_from(["identity", "reversed", "scrambled", "high", "spread", "shared", "repeated"]),
    table_end=st.sampled_from(["exact", "zeros", "nan_page", "minus_one"]),
    qscale=st.sampled_from(["pertensor", "kv_blockscale", "perhead"]),
    lengths=st.lists(st.integers(0, 70), min_size=1, max_size=3),
    heads=st.integers(1, 3),
    hdims=st.tuples(st.sampled_from([16, 48]), st.sampled_from([16, 32])),
)
@settings(max_examples=80)
def test_any_layout_reads_back(**drawn: object) -> None:
    lengths, hdims = drawn.pop("lengths"), drawn.pop("hdims")
    arch, heads, qscale = str(drawn.pop("arch")), drawn.pop("heads"), drawn.pop("qscale")
    assert isinstance(lengths, list)
    assert isinstance(hdims, tuple)
    problem = make_case(
        **drawn, nhead_q=heads, nhead_k=heads, seqlens_k=tuple(lengths), seqlens_q=(2,) * len(lengths),
        hdim_q=hdims[0], hdim_v=hdims[1], qscale=qscale if "fp8" in str(drawn["dtype"]) else "no",
        checks=("reference", "nan_canary", "nan_slack"), seed=5,
    )  # fmt: skip
    if complaint(problem) is None:
        assert agrees(prepare(problem, arch))


@pytest.mark.parametrize("qscale", ["pertensor", "perhead", "kv_blockscale"])
def test_v_within_k_has_scales_of_its_own(qscale: str) -> None:
    problem = make_case(
        dtype="bf16kvfp8", qscale=qscale, storage="latent", page_size=128, nhead_q=3, nhead_k=3, hdim_q=48, hdim_v=32,
        seqlens_k=(300, 20), seqlens_q=(2, 2), page_order="scrambled",
    )  # fmt: skip
    assert complaint(problem) is None
    prepared = prepare(problem, "gfx950")
    for got, want in zip(gather(prepared, "v"), prepared.inputs.v, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_column_major_v_by_hand() -> None:
    prepared = prepare(make_case(vlayout="col", seqlens_k=(5,), page_order="reversed"))
    v = decode(prepared.buffers["v"].writes[0].data, "bf16", "")
    assert v.shape == (1, 128, 8)
    assert v[0, :, 4].tolist() == prepared.inputs.v[0][0, 0].tolist()
    assert (prepared.fields["stride_v"], prepared.fields["nhead_stride_v"]) == (8, 1024)
    assert agrees(prepared)


@pytest.mark.parametrize("suite", SUITES)
def test_every_smoke_case_fits_its_buffers_and_abi(suite: str) -> None:
    """Small in host memory whatever the pool; every field is one of ckpm_problem and fits it."""
    for problem in problems(suite):
        prepared = prepare(problem)
        for buffer in prepared.buffers.values():
            assert all(w.offset >= 0 and w.offset + w.data.nbytes <= buffer.size for w in buffer.writes), problem.name
        assert sum(w.data.nbytes for b in prepared.buffers.values() for w in b.writes) < 256 << 20
        pointers = dict.fromkeys(prepared.pointers, 1 << 40)
        arguments = abi.LaunchArguments(**prepared.fields, **pointers)
        assert arguments.batch == problem.batch
        assert all(offset < prepared.buffers[name].size or not prepared.buffers[name].size
                   for name, offset in prepared.pointers.values())  # fmt: skip


@pytest.mark.parametrize("suite", ["page-fault", "sanitize"])
def test_smoke_cases_read_back(suite: str) -> None:
    assert [p.name for p in problems(suite) if not agrees(prepare(p, "gfx942"))] == []


def test_pool_of_9_gb_has_pages_at_every_line_and_stays_sparse() -> None:
    problem = next(p for p in problems("large-kv") if p.group == "lines_paged")
    prepared = prepare(problem)
    stride = problem.page_elements("k") * 2
    first = prepared.table.pages[0] * stride
    for line in LINES:
        assert ((first < line) & (first + stride >= line)).any(), line
        assert (first >= line).any()
    assert prepared.buffers["k"].size >= 9_000_000_000
    assert sum(w.data.nbytes for w in prepared.buffers["k"].writes) < 8 << 20
    assert agrees(prepared)


def test_poison_surrounds_but_does_not_enter() -> None:
    problem = make_case(
        seqlens_k=(6,), checks=("nan_canary",), page_order="spread", pool_pages=40, table_end="nan_page"
    )
    prepared = prepare(problem)
    used = set(prepared.table.pages[0].tolist())
    elements = np.arange(40) * 256
    rows = decode(read(prepared.buffers["k"], elements, np.uint16), "bf16", "")
    assert {page for page in range(40) if np.isnan(rows[page])} == set(range(40)) - used
    padding = prepared.buffers["kv_page_indices"].writes[0].data[6:]
    assert len(padding) == 256
    assert set(padding.tolist()) == {prepared.table.nan_page}
    assert prepared.table.nan_page not in used


def test_slack_is_poisoned_on_request() -> None:
    problem = make_case(seqlens_k=(5,), page_size=16, page_order="identity", checks=("nan_slack",))
    rows = decode(read(prepare(problem).buffers["v"], np.arange(16) * 256, np.uint16), "bf16", "")
    assert np.isnan(rows).tolist() == [False] * 5 + [True] * 11


@pytest.mark.parametrize(
    "check",
    ["identity_vs_scrambled", "linear_vs_vectorized", "sglang_vs_vllm", "paged_vs_contiguous", "exact_vs_padded"],
)
def test_counterparts_hold_same_numbers(check: str) -> None:
    problem = make_case(seqlens_q=(3, 4), seqlens_k=(40, 20), page_size=16, kv_layout="vectorized", seed=3)
    a, b = prepare(problem).inputs, prepare(counterpart(problem, check)).inputs
    assert all(np.array_equal(x, y) for x, y in zip((*a.q, *a.k, *a.v), (*b.q, *b.k, *b.v), strict=True))


def test_sequence_alone_holds_its_own_numbers() -> None:
    problem = make_case(seqlens_q=(3, 4), seqlens_k=(40, 20), bias="bias", nhead_q=2, seed=3)
    both = prepare(problem).inputs
    for sequence in (0, 1):
        alone = prepare(counterpart(problem, "batch_invariance", sequence)).inputs
        assert np.array_equal(both.q[sequence], alone.q[0])
        assert np.array_equal(both.v[sequence], alone.v[0])
        assert both.bias is not None
        assert alone.bias is not None
        assert np.array_equal(both.bias[sequence], alone.bias[0])


def test_consecutive_tokens_lie_in_order_of_pool() -> None:
    contiguous = counterpart(make_case(seqlens_k=(40,), page_size=16, kv_layout="vectorized"), "paged_vs_contiguous")
    prepared = prepare(contiguous)
    assert prepared.table.pages[0].tolist() == list(range(40))
    rows = decode(prepared.buffers["k"].writes[0].data[: 40 * contiguous.hdim_q], "bf16", "").reshape(40, -1)
    assert np.array_equal(rows, prepared.inputs.k[0][:, 0])


def test_freed_pages_are_not_written() -> None:
    problem = make_case(seqlens_k=(40,), page_size=16, page_order="spread", pool_pages=100, checks=("freed_pages",))
    prepared = prepare(problem)
    page = 16 * problem.hdim_q * 2
    for name in ("k", "v"):
        pool = prepared.buffers[name]
        assert pool.sparse
        assert pool.size == 100 * page
        # the table's end names page 0, which `spread` has as well
        assert sorted((write.offset, write.data.nbytes) for write in pool.writes) == [
            (0, page),
            (49 * page, page),
            (99 * page, page),
        ]


def test_tables_by_hand() -> None:
    problem = make_case(seqlens_q=(1, 1, 1), seqlens_k=(33, 0, 16), page_size=16, page_order="identity")
    arrays = {
        name: buffer.writes[0].data.tolist() for name, buffer in prepare(problem).buffers.items() if buffer.writes
    }
    assert arrays["kv_indptr"] == [0, 3, 3, 4]
    assert arrays["kv_page_indices"] == [0, 1, 2, 3]
    assert arrays["kv_last_page_lens"] == [1, 0, 16]
    assert arrays["seqstart_q"] == [0, 1, 2, 3]
    single = prepare(make_case(seqlens_q=(1,), seqlens_k=(3,), page_size=1))
    assert "kv_last_page_lens" not in single.pointers  # libraries of 2025 refuse it
    two_d = prepare(dataclasses.replace(problem, kv_table="vllm", table_end="minus_one")).buffers
    table = two_d["kv_page_indices"].writes[0].data
    assert table.shape == (3, 11)
    assert table[0].tolist() == [0, 1, 2] + [-1] * 8
    assert table[2, 0] == 3
    assert two_d["seqlen_k_ptr"].writes[0].data.tolist() == [33, 0, 16]


def test_shared_and_repeated_pages() -> None:
    shared = page_table(make_case(seqlens_q=(1, 1), seqlens_k=(10, 8), page_order="shared"))
    assert shared.pages[0][:4].tolist() == shared.pages[1][:4].tolist() == [0, 1, 2, 3]
    assert not set(shared.pages[0][4:].tolist()) & set(shared.pages[1][4:].tolist())
    repeated = page_table(make_case(seqlens_k=(100,), page_order="repeated"))
    assert repeated.pool_pages < 100
    assert repeated.pages[0].max() == 49


def test_stride_beyond_32_bits_is_refused() -> None:
    with pytest.raises(ProblemError, match="num_total_pages 2147483648 does not fit 32 bits"):
        prepare(make_case(pool_pages=2**31, page_order="high"))


def test_reading_unwritten_memory_is_refused() -> None:
    buffer = Buffer(size=100, writes=(Write(10, np.arange(4, dtype=np.uint16)),))
    assert read(buffer, np.array([10, 16]), np.uint16).tolist() == [0, 3]
    for offset in (8, 18):
        with pytest.raises(ProblemError):
            read(buffer, np.array([offset]), np.uint16)


def test_page_scales_go_by_position_of_page_in_its_sequence() -> None:
    wide = make_case(
        dtype="fp8bf16", qscale="kv_blockscale", page_size=16, seqlens_q=(3, 4), seqlens_k=(40, 20),
        nhead_q=2, nhead_k=2, k_page_scales=(1.0, 100.0), v_page_scales=(8.0,), seed=3,
        kv_range=(-112.0, 112.0),
    )  # fmt: skip
    prepared = prepare(wide)
    assert agrees(prepared)
    places = np.concatenate(prepared.table.pages)[:, None] * 16 + 4 * np.arange(4)  # bytes: 2 heads, K and V of each
    scales = read(prepared.buffers["kv_descale"], places, np.float32)
    assert scales[:, 0::2].tolist() == [[factor, 1.375 * factor] for factor in (1, 100, 1, 1, 100)]
    assert scales[:, 1::2].tolist() == [[8, 1.375 * 8]] * 5
    even = prepare(dataclasses.replace(wide, k_page_scales=(1.0,), v_page_scales=(1.0,)))
    factors = np.repeat([1, 100, 1], 16)[:40, None, None]
    assert np.allclose(prepared.inputs.k[0], even.inputs.k[0] * factors, rtol=1e-6)
    for check in ("identity_vs_scrambled", "batch_invariance"):
        other = prepare(counterpart(wide, check, 0))
        assert np.array_equal(other.inputs.k[0], prepared.inputs.k[0])

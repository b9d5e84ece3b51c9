"""Arrays of a call: what is read of each kind, and one error of its own for each way in which one is wrong."""

from __future__ import annotations

import ctypes
import dataclasses
import inspect
import re
import warnings
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ckpm
from ckpm.attention.arrays import tensors
from ckpm.attention.arrays.options import Options
from ckpm.attention.arrays.tables import Pages, keys_of_list, round_up
from ckpm.attention.arrays.tensors import OnDevice, operand
from ckpm.attention.call import fmha
from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.launch.encodings import decode, encode
from ckpm.attention.registry import Registry
from ckpm.base.errors import ArgumentError, DefectWarning, InputError, NoKernelError, ProblemError
from ckpm.matrix.problems.problem import KvLayout
from tests.unit.attention.fakes import (
    ARCH,
    FakeDevice,
    built,
    floats_at,
    fp8_prefill,
    make_dispatcher,
    make_writer,
    prefill,
)

SUMS = np.array([0, 40, 60], np.int32)
INDPTR = np.array([0, 70, 95], np.int32)
INDICES = np.arange(95, dtype=np.int32)[::-1].copy()
FALLING = np.array([0, 2_000_000_000, -2_000_000_000, 60], np.int32)  # differences of 32 bits are positive
Q = np.linspace(-1, 1, 60 * 4 * 128).reshape(60, 4, 128)
K = np.linspace(-1, 1, 100 * 2 * 128).reshape(100, 1, 2, 128)
PAGES = Pages(indices=INDICES, indptr=INDPTR)
VECTORISED = dataclasses.replace(PAGES, kv_layout="vectorised")  # type: ignore[arg-type]  # a typo


def call(dispatcher: Dispatcher, *, q: Any = Q, k: Any = K, v: Any = K, **options: Any) -> Any:
    arguments = {"dtype": "bf16", "cu_seqlens_q": SUMS, "pages": PAGES, **options}
    return fmha(q, k, v, dispatcher=dispatcher, **arguments)


def test_arrays_reach_kernel_and_o_comes_back() -> None:
    """The arrays at the addresses during the launch, and the values that the 'kernel' writes there."""
    seen: dict[str, Any] = {}

    def kernel(arguments: Any) -> int:
        for name, count, kind in (
            ("q", Q.size, np.uint16),
            ("k", K.size, np.uint16),
            ("kv_page_indices", 351, np.int32),
        ):
            data = ctypes.string_at(getattr(arguments, name), count * np.dtype(kind).itemsize)
            seen[name] = np.frombuffer(data, kind)
        return make_writer(o=encode(2 * Q, "bf16", ARCH))(arguments)

    dispatcher, _ = make_dispatcher(prefill(), FakeDevice(answer=kernel))
    done = call(dispatcher, q=Q.astype(np.float32))
    assert (seen["q"].reshape(Q.shape) == encode(Q.astype(np.float32).astype(np.float64), "bf16", ARCH)).all()
    assert (seen["k"].reshape(K.shape) == encode(K, "bf16", ARCH)).all()
    assert (seen["kv_page_indices"] == [*INDICES, *[0] * 256]).all()  # kernels read ahead of the list's end
    assert done.o.dtype == np.float32
    assert (done.o == decode(encode(2 * Q, "bf16", ARCH), "bf16", ARCH)).all()
    out = np.empty(Q.shape, np.uint16)
    bits = call(dispatcher, q=encode(Q, "bf16", ARCH), out=out)
    assert bits.o is out
    assert (out == encode(2 * Q, "bf16", ARCH)).all()


def test_keys_of_pages_beyond_32_bits_keep_their_number() -> None:
    counts, last = np.array([2049, 1], np.int32), np.array([16, 3], np.int32)
    assert keys_of_list(counts, 2**20, last).tolist() == [2048 * 2**20 + 16, 3]


def test_max_seqlen_q_beyond_the_rows_counts_as_the_rows() -> None:
    dispatcher, device = make_dispatcher(prefill())
    call(dispatcher, max_seqlen_q=2**28 + 1)
    assert device.launched[0].max_seqlen_q == len(Q)


def with_strides(array: np.ndarray[Any, Any], strides: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.lib.stride_tricks.as_strided(array, array.shape, tuple(step * array.itemsize for step in strides))


def read_only(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    array = np.zeros(shape, np.uint16)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"q": [[1.0]]}, ArgumentError, "q is a list: give a NumPy array"),
        ({"q": Q.astype(np.complex64)}, ArgumentError, "q is of dtype complex64"),
        ({"q": Q.astype(">f4")}, ArgumentError, "q is of dtype >f4"),
        ({"dtype": None}, ArgumentError, "q is of fp64, which doesn't say what a kernel makes of it"),
        ({"mask": True}, ArgumentError, "mask is True: give 'no', 'top_left', 'bottom_right' or 'window'."),
        ({"mask": "bottomright"}, ProblemError, "window; did you mean 'bottom_right'?"),
        ({"cu_seqlens_q": SUMS.astype(np.int64)}, ArgumentError, "cu_seqlens_q is of int64; give int32."),
        ({"q": Q[0]}, ArgumentError, "q is [4, 128]: with cu_seqlens_q it must be [token, head, dim]"),
        ({"cu_seqlens_q": None}, ArgumentError, "q is [60, 4, 128]: it must be BSHD, of four axes"),
        ({"cu_seqlens_q": SUMS + 1}, ArgumentError, "must ascend from 0 to the 60 rows of q"),
        ({"cu_seqlens_q": FALLING}, ArgumentError, "must ascend from 0"),
        ({"pages": Pages(indices=INDICES, indptr=FALLING[:3])}, ArgumentError, "doesn't ascend from 0"),
        ({"max_seqlen_q": 39}, ArgumentError, "max_seqlen_q 39 is less than the longest sequence, 40"),
        ({"k": K[0]}, ArgumentError, "both are [page, token, head, dim]"),
        ({"k": K[..., :64].copy()}, ArgumentError, "k is [100, 1, 2, 64], not [100, 1, 2, 128]"),
        ({"pages": Pages(indices=INDICES)}, ArgumentError, "a flat list of pages comes with indptr"),
        ({"pages": Pages(indices=INDICES, indptr=SUMS + 50)}, ArgumentError, "doesn't ascend from 0"),
        ({"pages": Pages(indices=INDICES + 9, indptr=INDPTR)}, ArgumentError, "the table names page 103"),
        ({"pages": Pages(indices=INDICES.reshape(1, 95))}, ArgumentError, "indices is [1, 95], not [2, 95]"),
        ({"lse": True, "alibi_slopes": np.ones(3, np.float32)}, ArgumentError, "bias is [3], not [4]"),
        ({"q": Q.transpose(0, 2, 1)[:, :4].copy().swapaxes(1, 2)}, ArgumentError, "q has strides [16, 1, 4]"),
        ({"q": Q[::-1]}, ArgumentError, "no stride may be negative"),
        ({"q": np.broadcast_to(Q[:1], Q.shape)}, ProblemError, "a step of 0 leads into the 1 elements"),
        ({"k": with_strides(K, (128, 128, 128, 1))}, ProblemError, "a step of 128 leads into the 256 elements"),
        ({"k": OnDevice(address=0, shape=K.shape, dtype="bf16")}, ArgumentError, "k is at address 0"),
        ({"k": OnDevice(address=64, shape=K.shape, dtype="bf16")}, ArgumentError, "device: k; on the host: q, v"),
        ({"out": OnDevice(address=64, shape=Q.shape, dtype="bf16")}, ArgumentError, "device: out; on the host: q"),
        ({"out": read_only(Q.shape), "q": encode(Q, "bf16", ARCH)}, ArgumentError, "out is read-only"),
        ({"out": np.zeros((60, 4, 64))}, ArgumentError, "out is [60, 4, 64], not [60, 4, 128]"),
        ({"out": np.zeros((60, 4, 256))[..., :128]}, ArgumentError, "out is not contiguous"),
        ({"out": np.zeros(Q.shape, np.int32)}, ArgumentError, "out is of int32; give bf16"),
        ({"lse_out": np.zeros((4, 60), np.float32)}, ArgumentError, "lse_out is written with lse=True only"),
        ({"layout": "nope"}, ArgumentError, "layout 'nope' is none of BSHD, BHSD."),
        ({"dtype": "bf61"}, ArgumentError, "bf16kvfp8; did you mean 'bf16'?"),
        ({"family": "fw"}, ArgumentError, "bwd_dq_dk_dv; did you mean 'fwd'?"),  # checks of tables depend on the family
        ({"family": "batch_prefil", "cu_seqlens_k": SUMS}, ArgumentError, "did you mean 'batch_prefill'?"),
        (
            {"pages": VECTORISED, **dict.fromkeys("kv", K.reshape(100, 2, 16, 1, 8))},
            ArgumentError, "kv_layout 'vectorised' is none of linear, vectorized; did you mean 'vectorized'?",
        ),
        ({"q": np.ma.masked_array(Q, Q > 0)}, ArgumentError, "q is a masked array, and no kernel reads its mask"),
    ],
)  # fmt: skip
def test_each_wrong_array_is_one_error(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    dispatcher, device = make_dispatcher(prefill())
    with pytest.raises(error) as raised:
        call(dispatcher, **changes)
    assert message in str(raised.value)
    assert "?." not in str(raised.value)
    assert not device.launched


@pytest.mark.parametrize("kind", [ml_dtypes.float8_e4m3fn, np.uint8])
def test_fp8_array_tells_its_kernels(kind: Any) -> None:
    """Scales come as a number, an array without axes and one of 16 bits; O is bf16."""
    seen: list[float] = []

    def kernel(arguments: Any) -> int:
        seen.extend(
            floats_at(address, 1)[0] for address in (arguments.q_descale, arguments.k_descale, arguments.v_descale)
        )
        return 0

    dispatcher, _ = make_dispatcher(fp8_prefill(), FakeDevice(answer=kernel))
    q, k = np.zeros(Q.shape, kind), np.zeros(K.shape, kind)
    scales = (0.5, np.array(0.25), np.array([2.0], np.float16))
    done = call(dispatcher, q=q, k=k, v=k, dtype="fp8bf16" if kind is np.uint8 else None, descales=scales)
    assert done.o.dtype == ml_dtypes.bfloat16
    call(dispatcher, q=q, k=k, v=k, dtype="fp8bf16")  # without scales a number stands for itself
    assert seen == [0.5, 0.25, 2.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("scales", [(-1.0, 1.0, 1.0), (1.0, 0.0, 1.0), (1.0, 1e30, 1.0), (1.0, 1.0, np.inf)])
def test_descales_that_spoil_scores_are_refused(scales: tuple[float, float, float]) -> None:
    dispatcher, device = make_dispatcher(fp8_prefill())
    q, k = (np.zeros(shape, np.uint8) for shape in (Q.shape, K.shape))
    with pytest.raises(ArgumentError, match="Q's and K's must be positive"):
        call(dispatcher, q=q, k=k, v=k, dtype="fp8bf16", descales=scales)
    assert not device.launched


def test_fp8_of_another_arch_is_refused() -> None:
    dispatcher, device = make_dispatcher(fp8_prefill())
    q, k = (np.zeros(shape, ml_dtypes.float8_e4m3fnuz) for shape in (Q.shape, K.shape))
    with pytest.raises(ArgumentError, match="q is of e4m3fnuz, and the kernels of gfx950 read e4m3fn"):
        call(dispatcher, q=q, k=k, v=k, dtype=None)
    assert not device.launched


def test_sink_logits_of_16_bits_reach_kernel_as_float32() -> None:
    seen: list[float] = []

    def kernel(arguments: Any) -> int:
        seen.extend(floats_at(arguments.sink, 4))
        return 0

    kernels = built("batch_prefill", "ckpm", dtype="bf16", hdim_q=128, page_size=1)
    dispatcher, _ = make_dispatcher(Registry(kernels), FakeDevice(answer=kernel))
    for kind in (np.float16, ml_dtypes.bfloat16):
        call(dispatcher, sink_logits=np.array([1.0, -2.0, 0.5, 3.0], kind))
    assert seen == [1.0, -2.0, 0.5, 3.0] * 2


def test_batch_without_queries_launches_nothing() -> None:
    dispatcher, device = make_dispatcher(prefill(lse=True))
    done = call(dispatcher, q=Q[:0], cu_seqlens_q=np.zeros(3, np.int32), lse=True)
    assert (done.o.shape, done.lse.shape, done.ran.kernels) == ((0, 4, 128), (4, 0), ())
    assert not device.launched


@pytest.mark.parametrize(
    ("kind", "written"), [(np.float32, 1.5), (np.float64, 1.5), (ml_dtypes.bfloat16, 1.5), (np.uint16, 0x3FC0)]
)
def test_out_takes_numbers_or_bits_by_its_dtype(kind: Any, written: float) -> None:
    bits = np.full(Q.shape, 0x3FC0, np.uint16)  # 1.5 in bf16
    dispatcher, _ = make_dispatcher(prefill(), FakeDevice(answer=make_writer(o=bits)))
    out = np.zeros(Q.shape, kind)
    assert call(dispatcher, out=out).o is out
    assert (out == kind(written)).all()


def test_lse_out_of_the_host_is_written() -> None:
    dispatcher, _ = make_dispatcher(prefill(), FakeDevice(answer=make_writer(lse=np.full((4, 60), 2.5, np.float32))))
    lse = np.zeros((4, 60), np.float32)
    assert call(dispatcher, lse=True, lse_out=lse).lse is lse
    assert (lse == 2.5).all()


@pytest.mark.parametrize("begin", [0, 100, 60 * 4 * 128 * 2 - 4])
def test_outputs_that_overlap_are_refused(begin: int) -> None:
    """O would hold LSE where the two overlap. Memory that touches is apart."""
    memory = np.zeros(60 * 4 * 128 * 2 + 4 * 60 * 4, np.uint8)
    out = memory[: 60 * 4 * 128 * 2].view(np.uint16).reshape(Q.shape)
    dispatcher, device = make_dispatcher(prefill(lse=True))
    lse = memory[begin : begin + 4 * 60 * 4].view(np.float32).reshape(4, 60)
    with pytest.raises(ArgumentError, match="overlap: a kernel would overwrite one with the other"):
        call(dispatcher, q=encode(Q, "bf16", ARCH), lse=True, out=out, lse_out=lse)
    assert not device.launched
    lse = memory[60 * 4 * 128 * 2 :].view(np.float32).reshape(4, 60)
    call(dispatcher, q=encode(Q, "bf16", ARCH), lse=True, out=out, lse_out=lse)


def test_conditions_of_known_defect_are_warned_of_once_a_plan() -> None:
    """CK's kernels of head dim 64 give NaN beside NaN (matrix/ledger.yaml: head-dim-below-128-reads-neighbours)."""
    arguments = {"q": Q[..., :64].copy(), "k": K[..., :64].copy(), "v": K[..., :64].copy()}
    dispatcher, _ = make_dispatcher(prefill())
    with pytest.warns(
        DefectWarning, match=r"fmha_batch_prefill_d128.* what follows a row of K .* must hold no NaN"
    ) as seen:
        call(dispatcher, **arguments)
    assert "192 entries after the end of the page list" not in str(seen[0].message)  # the call appends them itself
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(dispatcher, **arguments)
    dispatcher, _ = make_dispatcher(prefill(upstream="ckpm"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(dispatcher, **arguments)


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("softcap", "there is no option 'softcap'; give soft_cap. Options: dtype, layout, "),  # FlashAttention's
        ("sm_scale", "there is no option 'sm_scale'; give scale. "),  # FlashInfer's
        ("is_causal", "there is no option 'is_causal'; give mask='top_left'. "),  # PyTorch's
        ("dropoutt", "there is no option 'dropoutt'; did you mean 'dropout'? "),
        ("tming", "there is no option 'tming'; did you mean 'timing'? "),
        ("zzz", "there is no option 'zzz'. Options: "),
    ],
)
@pytest.mark.parametrize("function", [ckpm.fmha, ckpm.fmha_backward])
def test_option_that_does_not_exist_is_type_error_with_nearest(
    function: Callable[..., Any], option: str, hint: str
) -> None:
    dispatcher, _ = make_dispatcher(prefill())
    arrays = [Q] * (3 if function is ckpm.fmha else 6)
    with pytest.raises(TypeError, match=f"^{re.escape(hint)}") as caught:
        function(*arrays, dispatcher=dispatcher, **{option: 30.0})
    options = str(caught.value).partition("Options: ")[2].removesuffix(".").split(", ")
    assert {*options} == {*inspect.signature(function).parameters}


@pytest.mark.parametrize("function", [ckpm.fmha, ckpm.fmha_backward])
def test_wrong_option_is_refused_before_a_library_is_searched(
    monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any]
) -> None:
    monkeypatch.setattr("ckpm.attention.call._DEFAULTS", {})
    monkeypatch.setattr("ckpm.attention.call.library_folders", lambda arch: [])
    arrays = [Q] * (3 if function is ckpm.fmha else 6)
    with pytest.raises(TypeError, match="there is no option 'softcap'; give soft_cap"):
        function(*arrays, softcap=30.0)
    with pytest.raises(ArgumentError, match=r"mask 'causal' is none of .*; write bottom_right, or top_left"):
        ckpm.fmha(Q, Q, Q, mask="causal")  # type: ignore[arg-type]
    with pytest.raises(NoKernelError, match="no folder is searched for libraries"):
        function(*arrays)


@pytest.mark.parametrize(
    ("function", "arrays", "others", "left_out"),
    [
        (ckpm.fmha, "q k v", {"dispatcher", "out", "lse_out", "stream", "timing"}, set()),
        (ckpm.fmha_backward, "do q k v o lse", {"dispatcher", "dbias", "deterministic", "timing"}, {"family", "lse"}),
    ],
)
def test_signature_shows_every_option(
    function: Callable[..., Any], arrays: str, others: set[str], left_out: set[str]
) -> None:
    parameters = dict(inspect.signature(function).parameters)
    positional = [name for name, parameter in parameters.items() if parameter.kind is not parameter.KEYWORD_ONLY]
    assert positional == arrays.split()
    options = {field.name: field.default for field in dataclasses.fields(Options) if field.name not in left_out}
    shown = {name: parameter.default for name, parameter in parameters.items() if name not in positional}
    assert options.items() <= shown.items()
    assert shown.keys() - options.keys() == others
    assert "top_left and bottom_right are causal" in str(function.__doc__)


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ({"mask": "causal"}, "write bottom_right, or top_left"),  # FlashInfer's, xFormers'
        ({"dtype": "bfloat16"}, "write bf16"),  # PyTorch's
        ({"dtype": "BF16"}, "write bf16"),
        ({"layout": "NHD"}, "write BSHD"),  # FlashInfer's
        ({"layout": "bhsd"}, "write BHSD"),
        ({"layout": "thd"}, "write BSHD, with cu_seqlens_q"),  # Transformer Engine's
        ({"scale": None}, "leave it out for 1 / sqrt"),
    ],
)
def test_word_of_another_library_has_own_word(option: dict[str, Any], hint: str) -> None:
    dispatcher, _ = make_dispatcher(prefill())
    with pytest.raises(InputError, match=re.escape(hint)):
        call(dispatcher, **option)


def test_name_that_package_lacks_has_nearest() -> None:
    with pytest.raises(AttributeError, match=r"module 'ckpm' has no attribute 'fhma'; did you mean 'fmha'\?"):
        _ = ckpm.fhma  # type: ignore[attr-defined]


def batch(dispatcher: Dispatcher, q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], **options: Any) -> Any:
    return fmha(*(np.zeros(shape, np.float16) for shape in (q, k, v)), dispatcher=dispatcher, **options)


@pytest.mark.parametrize(
    ("shapes", "options", "message"),
    [
        (((2, 9, 4, 128), (3, 9, 4, 128), (2, 9, 4, 128)), {}, "they don't fit q or one another"),
        (((2, 9, 4, 128), (2, 9, 4, 128), (2, 8, 4, 128)), {}, "they don't fit q or one another"),
        (((2, 9, 4, 128), (2, 9, 4, 64), (2, 9, 4, 128)), {}, "they don't fit q or one another"),
        (((2, 9, 4, 128), (2, 9, 128), (2, 9, 128)), {}, "both must be BSHD, as q"),
        (((2, 9, 4, 128), (2, 9, 4, 128), (2, 9, 4, 128)), {"layout": "SBHD"}, "layout 'SBHD' is none of BSHD, BHSD"),
        (((2, 9, 4, 128), (2, 9, 4, 128), (2, 9, 4, 128)), {"bias": np.zeros((2, 4, 9, 8), np.float16)}, "bias is"),
    ],
)
def test_contiguous_arrays_that_don_t_fit(shapes: Any, options: dict[str, Any], message: str) -> None:
    dispatcher, _ = make_dispatcher(Registry(built("fwd", dtype="fp16", hdim_q=128)))
    with pytest.raises(ArgumentError) as raised:
        batch(dispatcher, *shapes, **options)
    assert message in str(raised.value)


def test_layout_of_a_batch_with_cu_seqlens_is_refused() -> None:
    """Arrays of [head, token, dim] were read as [token, head, dim], without a message if the sums fitted both."""
    dispatcher, _ = make_dispatcher(Registry(built("fwd", dtype="fp16", hdim_q=128, mode="group")))
    sums = np.array([0, 4], np.int32)
    shape = (4, 4, 128)
    with pytest.raises(ArgumentError, match="layout 'BHSD' with cu_seqlens_q"):
        batch(dispatcher, shape, shape, shape, layout="BHSD", cu_seqlens_q=sums, cu_seqlens_k=sums)


class Exporting:
    """A tensor of a framework, as far as DLPack asks: memory of NumPy's that claims a device."""

    def __init__(self, array: np.ndarray[Any, Any], kind: int, number: int = 0) -> None:
        self.array, self.kind, self.number = array, kind, number

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, self.number

    def __dlpack__(self) -> Any:
        return self.array.__dlpack__()


def test_tensor_on_host_is_read_where_it_lies() -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    read = operand("q", Exporting(array, tensors.CPU), FakeDevice())
    assert read.array is not None
    assert (read.dtype, read.shape, read.array.ctypes.data) == ("fp32", (2, 3, 4), array.ctypes.data)


def test_tensor_on_gpu_gives_its_address_and_strides() -> None:
    array = np.zeros((4, 6, 8), np.float16)[:, :3]
    read = operand("q", Exporting(array, tensors.ROCM), FakeDevice("hip"))
    assert (read.array, read.address, read.strides) == (None, array.ctypes.data, (48, 8, 1))
    assert (read.dtype, read.shape, read.contiguous) == ("fp16", (4, 3, 8), False)


@pytest.mark.parametrize(
    ("kind", "device"), [(tensors.ROCM, "emulator"), (tensors.CUDA, "hip"), (tensors.CUDA, "emulator")]
)
def test_tensor_of_another_device_is_refused(kind: int, device: str) -> None:
    with pytest.raises(ArgumentError, match=f"the dispatcher's device is {device} gfx950"):
        operand("q", Exporting(np.zeros(3, np.float16), kind), FakeDevice(device))


def test_tensors_of_two_gpus_are_refused() -> None:
    """A kernel runs on one GPU, and reads the memory of another slowly or not at all."""
    array, device = np.zeros(3, np.float16), FakeDevice("hip")
    q, k, v = (
        operand(name, Exporting(array, tensors.ROCM, number), device) for name, number in (("q", 0), ("k", 1), ("v", 0))
    )
    assert tensors.demand_one_place([q, v, operand("out", OnDevice(address=64, shape=(3,), dtype="fp16"), device)])
    with pytest.raises(ArgumentError, match="q on GPU 0, k on GPU 1: give all on one GPU"):
        tensors.demand_one_place([q, k])


class Interfaced:
    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.__cuda_array_interface__ = array.__array_interface__


def test_rocm_s_pytorch_gives_interface_under_cuda_s_name() -> None:
    array = np.zeros((4, 6), np.float32)
    read = operand("bias", Interfaced(array), FakeDevice("hip"))
    assert (read.address, read.strides, read.dtype) == (array.ctypes.data, (6, 1), "fp32")
    with pytest.raises(ArgumentError, match="bias is on a GPU"):
        operand("bias", Interfaced(array), FakeDevice("emulator"))


def on_device(array: np.ndarray[Any, Any], dtype: str) -> OnDevice:
    return OnDevice(address=array.ctypes.data, shape=array.shape, dtype=dtype)


def test_device_arrays_are_not_copied() -> None:
    q, k, o = encode(Q, "bf16", ARCH), encode(K, "bf16", ARCH), np.zeros(Q.shape, np.uint16)
    dispatcher, device = make_dispatcher(prefill())
    pages = Pages(indices=on_device(INDICES, "int32"), indptr=on_device(INDPTR, "int32"), longest=70)
    arguments = {"cu_seqlens_q": on_device(SUMS, "int32"), "max_seqlen_q": 40, "pages": pages}
    with pytest.raises(ArgumentError, match="o needs memory on the device"):
        call(dispatcher, q=on_device(q, "bf16"), k=on_device(k, "bf16"), v=on_device(k, "bf16"), **arguments)
    out = on_device(o, "bf16")
    with pytest.raises(ArgumentError, match="on the device: q; on the host: out"):
        call(
            dispatcher, q=on_device(q, "bf16"), k=on_device(k, "bf16"), v=on_device(k, "bf16"), out=o, **arguments
        )  # fmt: skip
    done = call(
        dispatcher,
        q=on_device(q, "bf16"),
        k=on_device(k, "bf16"),
        v=on_device(k, "bf16"),
        out=out,
        stream=9,
        **arguments,
    )
    launch = device.launched[0]
    assert (launch.q, launch.k, launch.v, launch.o) == (q.ctypes.data, k.ctypes.data, k.ctypes.data, o.ctypes.data)
    assert (launch.stream, launch.seqlen_k, launch.max_seqlen_q, done.o) == (9, 72, 40, out)  # 70 in steps of 8
    assert not device.hip.memory  # type: ignore[attr-defined]
    with pytest.raises(ArgumentError, match="max_seqlen_q must be given: the lengths are on the device"):
        call(dispatcher, q=out, k=on_device(k, "bf16"), v=on_device(k, "bf16"), **{**arguments, "max_seqlen_q": None})


@pytest.mark.parametrize(
    ("options", "seqlen_k"), [({}, 72), ({"window": (64, 0), "mask": "bottom_right"}, 70), ({"split_keys": 128}, 70)]
)
def test_longest_of_device_tables_is_rounded(options: dict[str, Any], seqlen_k: int) -> None:
    """A known defect of windows depends on it, and a given range of keys on the number of ranges."""
    dispatcher, device = make_dispatcher(Registry(built("batch_prefill", "ckpm-serving", dtype="bf16", page_size=1)))
    q, k = encode(Q, "bf16", ARCH), encode(K, "bf16", ARCH)
    pages = Pages(indices=on_device(INDICES, "int32"), indptr=on_device(INDPTR, "int32"), longest=70)
    of_device = {"cu_seqlens_q": on_device(SUMS, "int32"), "max_seqlen_q": 40, "pages": pages, **options}
    out = on_device(np.zeros(Q.shape, np.uint16), "bf16")
    done = fmha(
        on_device(q, "bf16"), on_device(k, "bf16"), on_device(k, "bf16"), out=out, dispatcher=dispatcher,
        **{"mask": "bottom_right", **of_device},
    )  # fmt: skip
    assert done.problem.seqlen_k == seqlen_k
    assert device.launched


@given(longest=st.integers(0, 2**20), more=st.integers(0, 2**20))
def test_plans_of_device_tables_serve_longer_sequences(longest: int, more: int) -> None:
    """A decode step has one more key than the last, and finds the same plan."""
    rounded = round_up(longest, longest + more)
    assert longest <= rounded <= min(longest * 9 / 8 + 1, longest + more)
    assert len({round_up(length, 2**20) for length in range(2**14 + 1, 2**15)}) == 8


def test_scores_beyond_float32_are_refused_on_the_host() -> None:
    """Equal rows of 128 numbers x have the score x^2 * 128^0.5: 1.48e9 at 11,440; O was 0 or NaN at 11,520."""
    dispatcher, _ = make_dispatcher(prefill())
    call(dispatcher, q=np.full_like(Q, 11_392), k=np.full_like(K, 11_392), v=K)
    for factor in (1, -1):
        with pytest.raises(ArgumentError, match=r"scores may reach 1\.5e\+09"):
            call(dispatcher, q=np.full_like(Q, 11_520), k=np.full_like(K, 11_520 * factor), v=K)
    call(dispatcher, q=np.full_like(Q, 11_520), k=np.full_like(K, 11_520), v=K, scale=0.01)


@pytest.mark.parametrize("layout", ["linear", "vectorized"])
@pytest.mark.parametrize("table", ["sglang", "vllm"])
def test_keys_of_no_sequence_have_no_scores(layout: KvLayout, table: str) -> None:
    """Other pages and slots after the last token of a page hold numbers that would be refused."""
    dispatcher, _ = make_dispatcher(Registry(built("batch_prefill", "ckpm", dtype="bf16", page_size=16)))
    k = np.full((9, 2, 16, 16, 8) if layout == "vectorized" else (9, 16, 2, 128), 3e38)
    whole = k if layout == "linear" else np.moveaxis(k, 3, 1)
    whole[3], whole[5, :7], k[8] = 1, 1, np.nan
    lengths = np.array([16, 7], np.int32)
    tables: dict[str, dict[str, Any]] = {
        "sglang": {
            "indices": np.array([3, 5], np.int32),
            "indptr": np.arange(3, dtype=np.int32),
            "last_page_lens": lengths,
        },
        "vllm": {"indices": np.array([[3, 8], [5, 8]], np.int32), "seqlens_k": lengths},
    }
    arrays: dict[str, Any] = {"q": 1e4 * Q, "k": k, "pages": Pages(**tables[table], kv_layout=layout)}
    arrays["v"] = np.zeros((9, 2, 2, 128, 8) if layout == "vectorized" else k.shape)
    call(dispatcher, **arrays)
    whole[5, 6] = 3e38
    with pytest.raises(ArgumentError, match="scores may reach"):
        call(dispatcher, **arrays)


@pytest.mark.parametrize(
    ("sums", "message"),
    [
        (np.array([0, 100_000, 7, 9], np.int32), "cu_seqlens_k is [4], not [2] (batch + 1)"),
        (np.array([0, 100_000], np.int32), "cu_seqlens_k [0, 100000] are not the sums of seqlens_k, [0, 300]"),
    ],
)
def test_sums_of_paged_lengths_that_differ_are_refused(sums: Any, message: str) -> None:
    """Paged kernels of fwd read as many keys as the sums have."""
    dispatcher, device = make_dispatcher(Registry(built("fwd_pagedkv", dtype="bf16", hdim_q=128, mode="group")))
    q, k = np.zeros((20, 4, 128)), np.zeros((3, 128, 2, 128))
    pages = Pages(indices=np.arange(3, dtype=np.int32)[None], seqlens_k=np.array([300], np.int32))
    options: dict[str, Any] = {
        "family": "fwd_pagedkv",
        "cu_seqlens_q": np.array([0, 20], np.int32),
        "pages": pages,
        "dtype": "bf16",
    }
    with pytest.raises(ArgumentError, match=re.escape(message)):
        fmha(q, k, k, dispatcher=dispatcher, **options, cu_seqlens_k=sums)
    fmha(q, k, k, dispatcher=dispatcher, **options, cu_seqlens_k=np.array([0, 300], np.int32))
    fmha(q, k, k, dispatcher=dispatcher, **options)
    assert len(device.launched) == 2


def test_paged_lengths_on_the_device_need_their_sums() -> None:
    dispatcher, device = make_dispatcher(Registry(built("fwd_pagedkv", dtype="bf16", hdim_q=128, mode="group")))
    q, k = (OnDevice(address=4096, shape=shape, dtype="bf16") for shape in ((20, 4, 128), (3, 128, 2, 128)))
    sums, lengths, table = (OnDevice(address=64, shape=shape, dtype="int32") for shape in ((2,), (1,), (1, 3)))
    options: dict[str, Any] = {
        "family": "fwd_pagedkv", "cu_seqlens_q": sums, "max_seqlen_q": 20, "out": q,
        "pages": Pages(indices=table, seqlens_k=lengths, longest=300),
    }  # fmt: skip
    with pytest.raises(ArgumentError, match="give cu_seqlens_k: kernels of fwd_pagedkv read lengths there"):
        fmha(q, k, k, dispatcher=dispatcher, **options)
    fmha(q, k, k, dispatcher=dispatcher, **options, cu_seqlens_k=sums)
    assert len(device.launched) == 1


@pytest.mark.parametrize("table", ["sglang", "vllm"])
def test_pages_of_no_sequence_may_be_an_empty_list_on_the_device(table: str) -> None:
    """The list's address is 0 then, which libraries refuse, and kernels of ours read no list without keys."""
    own = built("batch_prefill", "ckpm", dtype="bf16", hdim_q=128, page_size=1, kv_table=table)
    dispatcher, device = make_dispatcher(Registry(own))
    q, k = (OnDevice(address=4096, shape=shape, dtype="bf16") for shape in ((60, 4, 128), (100, 1, 2, 128)))
    sums, lengths = (OnDevice(address=64, shape=shape, dtype="int32") for shape in ((3,), (2,)))
    empty = OnDevice(address=0, shape=(0,) if table == "sglang" else (2, 0), dtype="int32")
    more: dict[str, Any] = {"indptr": sums} if table == "sglang" else {"seqlens_k": lengths}
    pages = Pages(indices=empty, **more, longest=0)
    fmha(q, k, k, dispatcher=dispatcher, cu_seqlens_q=sums, max_seqlen_q=40, pages=pages, out=q)
    assert device.launched[0].kv_page_indices

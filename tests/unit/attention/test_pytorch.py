"""Calls with tensors of PyTorch: of a stand-in over NumPy, and of PyTorch itself where it is installed."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ckpm.attention.arrays.pytorch import current_stream, padded_list, single_precision
from ckpm.attention.arrays.tables import Pages
from ckpm.attention.call import fmha
from tests.unit.attention.fakes import fp8_prefill, make_dispatcher, prefill

SUMS, INDPTR = np.array([0, 40, 60], np.int32), np.array([0, 70, 95], np.int32)
PAGES = Pages(indices=np.arange(95, dtype=np.int32), indptr=INDPTR)


class Tensor:
    """A tensor over an array, as far as this project reads one."""

    def __init__(self, array: np.ndarray[Any, Any], device: str = "cpu") -> None:
        self.array, self.device, self.requires_grad = array, SimpleNamespace(type=device), False
        self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim
        self.is_cuda = device != "cpu"

    def detach(self) -> Tensor:
        return Tensor(self.array, self.device.type)

    def get_device(self) -> int:
        return -1 if self.device.type == "cpu" else 0

    def new_empty(self, shape: tuple[int, ...], dtype: Any) -> Tensor:
        return Tensor(np.empty(shape, dtype), self.device.type)

    def new_zeros(self, size: int) -> Tensor:
        return Tensor(np.zeros(size, self.dtype), self.device.type)

    def element_size(self) -> int:
        return self.array.itemsize

    def is_contiguous(self) -> bool:
        return True

    def untyped_storage(self) -> Any:
        whole = self.array if self.array.base is None else self.array.base
        return SimpleNamespace(nbytes=lambda: whole.nbytes)

    def storage_offset(self) -> int:
        return 0

    def __getitem__(self, at: Any) -> Tensor:
        return Tensor(self.array[at], self.device.type)

    def __setitem__(self, at: Any, values: Tensor) -> None:
        self.array[at] = values.array

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self) -> Any:
        if self.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        return self.array.__dlpack__()

    def numpy(self) -> np.ndarray[Any, Any]:
        return self.array


@pytest.fixture(params=["stand-in", "torch"])
def torch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "torch":
        return pytest.importorskip("torch")
    queues = SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 77)
    names = {name: np.dtype(name) for name in ("float16", "float32", "uint8", "uint16")}
    new = {"from_numpy": Tensor, "empty_like": lambda tensor: tensor.new_empty(tensor.shape, tensor.dtype)}
    stand_in = SimpleNamespace(Tensor=Tensor, _C=queues, **new, **names)
    monkeypatch.setitem(sys.modules, "torch", stand_in)
    return stand_in


def call(torch: Any, **options: Any) -> Any:
    dispatcher, device = make_dispatcher(prefill(dtype="fp16"))
    q = options.pop("q", None)
    q = torch.from_numpy(np.zeros((60, 4, 128), np.float16)) if q is None else q
    k = torch.from_numpy(np.zeros((100, 1, 2, 128), np.float16))
    done = fmha(q, k, k, dispatcher=dispatcher, cu_seqlens_q=SUMS, pages=PAGES, **options)
    assert len(device.launched) == 1
    return done


def test_outputs_of_tensors_are_tensors(torch: Any) -> None:
    done = call(torch, lse=True, dropout=0.5, random_values=True)
    kinds = {"o": torch.float16, "lse": torch.float32, "random_values": torch.uint8}
    for name, kind in kinds.items():
        output = getattr(done, name)
        assert isinstance(output, torch.Tensor)
        assert output.dtype == kind
    assert tuple(done.o.shape) == (60, 4, 128)


def test_out_that_is_a_tensor_is_written(torch: Any) -> None:
    out, lse = torch.from_numpy(np.ones((60, 4, 128), np.float16)), torch.from_numpy(np.ones((4, 60), np.float32))
    done = call(torch, out=out, lse=True, lse_out=lse)
    assert done.o is out
    assert done.lse is lse
    assert np.isnan(out.numpy()).all()  # what outputs hold before the kernel, which here writes nothing
    assert np.isnan(lse.numpy()).all()


def test_tensor_with_gradient_is_read(torch: Any) -> None:
    q = torch.from_numpy(np.zeros((60, 4, 128), np.float16))
    q.requires_grad = True
    assert not call(torch, q=q).o.requires_grad


def test_page_list_on_gpu_gets_zeros_behind_its_end() -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, "torch", SimpleNamespace(Tensor=Tensor))
        exact = Tensor(np.arange(1, 96, dtype=np.int32), "cuda")
        padded = padded_list(exact)
        assert (padded.array == exact.array).all()
        assert (padded.array.base == [*range(1, 96), *[0] * 256]).all()
        assert padded_list(padded) is padded  # planned once, run for each layer
        host = Tensor(exact.array)
        assert padded_list(host) is host
    assert padded_list(INDPTR) is INDPTR


def test_launch_on_gpu_is_queued_on_torch_s_stream(torch: Any) -> None:
    if torch.Tensor is not Tensor:
        pytest.skip("no GPU")
    assert current_stream(Tensor(INDPTR, "cuda")) == 77
    assert current_stream(Tensor(INDPTR)) == current_stream(INDPTR) == 0


def test_numbers_read_as_float32_are_widened() -> None:
    import ml_dtypes

    for kind in (np.float16, ml_dtypes.bfloat16):
        widened = single_precision(np.array([1.5, -2.0], kind), INDPTR)
        assert widened.dtype == np.float32
        assert widened.tolist() == [1.5, -2.0]
    assert single_precision(3, INDPTR).tolist() == [3.0]
    assert single_precision(np.ones(1, np.uint16), INDPTR).dtype == np.uint16


def test_torch_s_short_dtypes_reach_kernels() -> None:
    torch = pytest.importorskip("torch")
    dispatcher, device = make_dispatcher(prefill())
    q, k = torch.ones(60, 4, 128, dtype=torch.bfloat16), torch.ones(100, 1, 2, 128, dtype=torch.bfloat16)
    options: dict[str, Any] = {"dispatcher": dispatcher, "cu_seqlens_q": SUMS, "pages": PAGES}
    assert fmha(q, k, k, **options).o.dtype == torch.bfloat16
    options["dispatcher"], device = make_dispatcher(fp8_prefill())
    q, k = q.to(torch.float8_e4m3fn), k.to(torch.float8_e4m3fn)
    scale = torch.tensor(0.5, dtype=torch.bfloat16)
    assert fmha(q, k, k, descales=(scale, scale, 0.25), **options).o.dtype == torch.bfloat16
    assert len(device.launched) == 1


def test_missing_torch_is_named_and_ckpm_needs_none() -> None:
    script = (
        "import sys, ckpm; assert 'torch' not in sys.modules; sys.modules['torch'] = None\n"
        "from ckpm import *; assert fmha is ckpm.fmha\n"
        "try: ckpm.torch\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "ckpm.torch needs PyTorch" in done.stdout
    assert "pip install torch" in done.stdout

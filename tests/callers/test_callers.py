"""The stand-ins, the samples and the counts, on a test file that is written here. No kernel runs."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec
import pytest
import torch

from ckpm.base.errors import UsageError
from conformance.stored import PASSED, UNSUPPORTED, WRONG
from tests.callers.__main__ import main, outcomes
from tests.callers.gpu import run_on_host
from tests.callers.reference import attend
from tests.callers.table import callers

CASES = """
import aiter, pytest, torch

@pytest.mark.parametrize("batch_size,qo_len,kv_len,num_qo_heads", [(1, 128, 128, 8), (7, 2048, 2048, 8)])
@pytest.mark.parametrize("head_dim", [128, 256])
@pytest.mark.parametrize("input_dtype", ["bf16", "fp8"])
@pytest.mark.parametrize("seed", range(10))
def test_right(batch_size, qo_len, kv_len, num_qo_heads, head_dim, input_dtype, seed):
    assert torch.ones(qo_len, device="cuda").to(0).sum() == qo_len

def test_wrong():
    assert aiter.per_tensor_quant(torch.ones(4), quant_dtype=torch.int8)[1] == 1

def test_refused():
    one = torch.zeros(2, 1, 128, dtype=torch.bfloat16, device="cuda")
    sums = torch.tensor([0, 2], dtype=torch.int32).cuda()
    aiter.mha_batch_prefill_func(one, one, one, sums, sums, torch.arange(2).int(), 2, 2)

def test_skipped():
    pytest.skip("by itself")

def test_batch_prefill_large_kvcache():
    raise MemoryError
"""


def run_cases(folder: Path, monkeypatch: pytest.MonkeyPatch, **options: int) -> dict[str, tuple[str, str]]:
    (folder / "test_theirs.py").write_text(CASES)
    monkeypatch.setattr("tests.callers.__main__.RESULTS", folder)
    row = msgspec.structs.replace(callers()["aiter-bf16"], files=["test_theirs.py"])
    args = argparse.Namespace(jobs=0, **options)
    return dict(outcomes("aiter-bf16", row, folder, folder / "no libraries", args))


def test_cases_are_counted_as_passed_refused_or_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = run_cases(tmp_path, monkeypatch, cases=100, seed=1)
    assert {name: kind for name, (kind, _) in seen.items() if kind != PASSED} == {
        "test_wrong": WRONG, "test_refused": UNSUPPORTED, "test_skipped": UNSUPPORTED,
    }  # fmt: skip
    assert "no built kernel of batch_prefill serves the problem" in seen["test_refused"][1]
    assert seen["test_skipped"][1] == "skipped by the test itself"
    assert len(seen) == 13, "those of head dim 128 and bf16 that are small, and three"


def test_other_seed_draws_other_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, other = (run_cases(tmp_path, monkeypatch, cases=6, seed=seed) for seed in (1, 2))
    assert (len(first), len(other)) == (6, 6)
    assert first.keys() != other.keys()


def test_clone_without_its_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--aiter", str(tmp_path), "--libraries", str(tmp_path)]) == UsageError.exit_code
    assert "a clone of aiter?" in capsys.readouterr().err


def test_gpu_s_devices_are_the_host() -> None:
    with run_on_host():
        tensors = [torch.ones(1).to(0), torch.ones(1).cuda(), torch.ones(1, device="cuda:0"), torch.ones(1).to("cuda")]
        assert {str(tensor.device) for tensor in tensors} == {"cpu"}
        assert torch.ones(1).to(torch.float16).dtype == torch.float16
        assert torch.cuda.get_device_properties(0).gcnArchName == "gfx950"
    assert not torch.cuda.is_available()


def test_reference_of_single_prefill_is_pytorch_s_attention() -> None:
    q, k, v = torch.randn(3, 40, 4, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    o, lse = attend(q, k, v, causal=True)
    want = torch.nn.functional.scaled_dot_product_attention(
        *(tensor.transpose(0, 1) for tensor in (q, k, v)), is_causal=True
    )
    torch.testing.assert_close(o, want.transpose(0, 1))
    torch.testing.assert_close(torch.exp2(lse[0]), torch.exp(torch.einsum("hd,hd->h", q[0], k[0]) / 4))

"""AITER's forward kernels for the timing model: arguments as its host code has them, and the package they come from."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import msgspec
import pytest

from ckpm.base.errors import TrustError
from ckpm.kernels.upstream import package_index
from ckpm.matrix.dialects import check_upstream
from ckpm.timing import asm
from ckpm.timing.published import PublishedShape
from tests.programs.objects.launching import pack

MEMBER = "aiter_meta/hsa/gfx942/fmha_v3_fwd/MI300/fwd_hd128_bf16_causal_rtna.co"


def test_arguments_are_those_of_host_code() -> None:
    """The expected block is made by the table of names and offsets that the code objects' own tests use."""
    shape = PublishedShape(batch=3, heads=16, kv_heads=4, length=512, head_dim=128, causal=True)
    at = {"o": 1, "q": 2, "k": 3, "v": 4, "lse": 5}
    query, key = 16 * 128 * 2, 4 * 128 * 2
    expected = {
        **at,
        **{"scale": 128**-0.5, "seqlen_q": 512, "seqlen_k": 512, "hdim_q": 128, "hdim_v": 128, "nhead_q": 16, "gqa": 4},
        **{"tuning": 5, "store_lse": 0, "q_tile": 256 * query},
        **{f"{name}_row": query for name in "qo"},
        **{f"{name}_row": key for name in "kv"},
        **{f"{name}_head": 256 for name in "qkvo"},
        **{f"{name}_batch": 512 * query for name in "qo"},
        **{f"{name}_batch": 512 * key for name in "kv"},
    }
    block = asm._arguments(at, shape)
    packed = pack("fmha_v3_fwd", expected)
    assert block[: len(packed)] == packed
    assert not any(block[len(packed) :])


def test_code_object_comes_from_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = check_upstream("aiter")
    source = tmp_path / "source.whl"
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr(MEMBER, b"code")
    monkeypatch.setattr(package_index, "download", lambda _, archive: archive.write_bytes(source.read_bytes()))
    with pytest.raises(TrustError, match=r"sha256 is .* \(matrix/upstreams\.yaml\)\. The file was thrown away"):
        asm.code_object("gfx942", True, tmp_path)
    assert not list(tmp_path.rglob(package.file))
    served = msgspec.structs.replace(package, sha256=hashlib.sha256(source.read_bytes()).hexdigest())
    monkeypatch.setattr(asm, "check_upstream", lambda _: served)
    (tmp_path / "upstream" / package.file).write_bytes(source.read_bytes()[:9])  # a download was interrupted
    code = asm.code_object("gfx942", True, tmp_path)
    assert code == (b"code", "_ZN5aiter31fmha_fwd_hd128_bf16_causal_rtnaE")

"""Launches on a device of Python: what is looked at, and which contradictions never reach a device."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from ckpm.attention.launch import launching
from ckpm.attention.launch.buffers import Prepared, prepare
from ckpm.attention.launch.c_abi import Launch, Library
from ckpm.attention.launch.device import Fault, GpuDevice, choose
from ckpm.attention.launch.encodings import encode
from ckpm.attention.launch.hip_api import OUT_OF_MEMORY, HipApi, Memory, Properties
from ckpm.attention.launch.kv_pool import Buffer, Write
from ckpm.attention.launch.launching import check, run_problem
from ckpm.attention.reference import exact
from ckpm.base.errors import DeviceError, HipError, ProblemError, UsageError
from ckpm.kernels.abi import LaunchArguments, Status
from ckpm.matrix.dialects import dialect
from ckpm.matrix.problems.serving import serving_kernels
from ckpm.matrix.selection import Selection, select
from ckpm.suites.checks import CaseBench, Result, run_case
from tests.unit.attention import fakes
from tests.unit.attention.fakes import make_case


class FakeHip(fakes.FakeHip):
    """Addresses are invented, so that memory can be at a fixed one; what is freed is gone."""

    def __init__(self, room: int = 1 << 40) -> None:
        super().__init__()
        self.next, self.room = 1 << 20, room
        self.fixed = 0  # where the next memory must be

    def malloc(self, size: int) -> Memory:
        if size > self.room:
            raise HipError("hipMalloc: out of memory", OUT_OF_MEMORY)
        address = self.fixed or self.next
        self.next += 0 if self.fixed else size + 4096
        self.memory[address] = np.zeros(size, np.uint8)
        return Memory(address, size)

    def free(self, memory: Memory) -> None:
        del self.memory[memory.address]

    def explanation(self) -> str:
        return "the image was stripped"

    def properties(self) -> Properties:
        return Properties(arch="gfx950", compute_units=256, memory_bytes=1 << 38)


class FakeDevice(fakes.FakeDevice):
    def __init__(self, features: tuple[str, ...] = (), room: int = 1 << 40) -> None:
        super().__init__("fake")
        self.hip = cast(HipApi, FakeHip(room))
        self.features = features
        self.options: list[dict[str, Any]] = []

    def has(self, feature: str) -> bool:
        return feature in self.features

    def configure(self, **options: Any) -> None:
        self.options.append(options)

    @contextlib.contextmanager
    def place_memory(self, placement: str, at: int = 0) -> Iterator[None]:
        cast(FakeHip, self.hip).fixed = at
        yield
        cast(FakeHip, self.hip).fixed = 0


KEYS = tuple(select(dialect("ck-2025-11"), Selection(archs=("gfx950",), tier="smoke")))


class FakeLibrary:
    """Computes what the reference computes and stores it as the kernel would; ``spoil`` may change it."""

    def __init__(self, device: FakeDevice, spoil: Callable[[dict[str, np.ndarray], int], None] | None = None) -> None:
        self.device, self.spoil, self.launches = device, spoil, 0
        self.status = Status.OK
        self.current: Prepared | None = None  # of the launch to come
        self.family, self.arguments = "batch_prefill", LaunchArguments

    def launch(self, arguments: LaunchArguments, kernel: str | None = None) -> Launch:
        prepared = self.current
        assert prepared is not None
        if self.status != Status.OK:
            return Launch(status=self.status, message="said why", kernels=(), milliseconds=0)
        expected = exact(prepared.inputs)
        p = prepared.problem
        out = {"o": encode(expected.o, "bf16" if p.dtype == "fp8bf16" else p.dtype, "gfx950")}
        if p.lse:
            out["lse"] = expected.lse.astype(np.float32)
        if self.spoil:
            self.spoil(out, self.launches)
        self.launches += 1
        hip = cast(FakeHip, self.device.hip)
        for name, data in out.items():
            address = getattr(arguments, name)
            hip.memory[address][:] = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        chosen = kernel or serving_kernels(KEYS, p)[0].name
        return Launch(status=Status.OK, message="", kernels=(chosen,), milliseconds=0)


make = functools.partial(make_case, name="batch-prefill/x.y", suite="batch-prefill", table_end="zeros")


def bench(
    monkeypatch: pytest.MonkeyPatch, spoil: Callable[[dict[str, np.ndarray], int], None] | None = None, **device: Any
) -> tuple[CaseBench, FakeDevice, FakeLibrary]:
    """A fake library that sees the problem of each launch, which a real one reads from its buffers."""
    fake = FakeDevice(**device)
    library = FakeLibrary(fake, spoil)
    real = launching.check

    def note(prepared: Prepared) -> None:
        library.current = prepared
        real(prepared)

    monkeypatch.setattr(launching, "check", note)
    return CaseBench(device=fake, library=cast(Library, library), keys=KEYS), fake, library


# ---- contradictions


def change(prepared: Prepared, name: str, data: Any) -> Prepared:
    array = np.asarray(data, np.int32)
    buffer = Buffer(size=array.nbytes, writes=(Write(0, array),))
    return dataclasses.replace(prepared, buffers={**prepared.buffers, name: buffer})


TWO = make(seqlens_q=(3, 4), seqlens_k=(5, 6))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda p: change(p, "kv_page_indices", [0, 1, 2, 3, -1, *range(300)]),
         "sequence 0 names page -1, but the pool has pages 0 to 13."),
        (lambda p: change(p, "kv_page_indices", [*range(9), 14, 1, *range(300)]),
         "sequence 1 names page 14, but the pool has pages 0 to 13."),
        (lambda p: change(p, "kv_indptr", [0, 5, 400]), "doesn't ascend from 0 to at most 267 in 2 steps."),
        (lambda p: change(p, "kv_indptr", [0, 5, 4]), "kv_indptr [0, 5, 4] doesn't ascend"),
        (lambda p: change(p, "seqstart_q", [0, 3, 8]), "seqstart_q [0, 3, 8] disagrees with 7 query tokens."),
        (lambda p: change(p, "q", [1, 2, 3]), "q ends at byte 1792 by its sizes and strides, its buffer has 12."),
        (lambda p: dataclasses.replace(p, fields={**p.fields, "stride_k": 1 << 20, "batch_stride_k": 1 << 20}),
         "k ends at byte 27263232 by its sizes and strides"),
        (lambda p: dataclasses.replace(p, pointers={**p.pointers, "lse": ("nothing", 0)}),
         "lse points into 'nothing', which is not a buffer."),
        (lambda p: dataclasses.replace(p, pointers={**p.pointers, "o": ("o", -4)}), "o points -4 bytes into a buffer"),
        (lambda p: dataclasses.replace(
            p, buffers={**p.buffers, "k": Buffer(size=99, writes=(Write(90, np.zeros(20, np.uint8)),))}),
         "a write of 'k' ends at byte 110 of 99."),
    ],
)  # fmt: skip
def test_contradictions_are_reported_and_never_reach_device(
    spoil: Callable[[Prepared], Prepared], message: str
) -> None:
    spoiled = spoil(prepare(TWO))
    with pytest.raises(ProblemError) as caught:
        run_problem(FakeDevice(), cast(Library, None), spoiled)
    assert str(caught.value).startswith("batch-prefill/x.y: ")
    assert message in str(caught.value)


def test_block_table_is_checked_by_its_lengths() -> None:
    prepared = prepare(make(page_size=16, kv_table="vllm", seqlens_q=(3, 4), seqlens_k=(40, 6)))
    check(prepared)
    with pytest.raises(ProblemError, match=r"a length of 4000 needs 250 entries, a table row has 11\."):
        check(change(prepared, "seqlen_k_ptr", [40, 4000]))
    with pytest.raises(ProblemError, match="a length of -1 needs"):
        check(change(prepared, "seqlen_k_ptr", [-1, 6]))


@pytest.mark.parametrize(
    ("fields", "spoil", "message"),
    [
        ({"page_size": 16}, ("kv_last_page_lens", [8, 7]),
         "sequence 1 has 6 keys, but 1 pages of 16 tokens with 7 in the last one."),
        ({"page_size": 16}, ("kv_last_page_lens", [8]), "kv_last_page_lens has 1 entries for 2 sequences."),
        ({"bias": "bias"}, ("bias", [0]), "bias ends at byte 596 by its sizes and strides, its buffer has 4."),
        ({"bias": "alibi", "alibi_per_batch": True}, ("bias", [0]), "bias ends at byte 8 by its sizes"),
        ({"mode": "batch", "seqlens_q": (3, 3)}, ("o", [0]), "o ends at byte 1536 by its sizes"),
        ({"vlayout": "col"}, ("v", [0]), "v ends at byte 12544 by its sizes"),
        ({"dtype": "fp8bf16", "qscale": "kv_blockscale", "page_size": 128}, ("kv_descale", [0, 0]),
         "k_descale ends at byte 36 by its sizes"),
    ],
)  # fmt: skip
def test_every_buffer_is_as_large_as_its_strides_say(
    fields: dict[str, Any], spoil: tuple[str, list[int]], message: str
) -> None:
    prepared = prepare(make(**{"seqlens_q": (3, 4), "seqlens_k": (40, 6), **fields}))
    check(prepared)
    with pytest.raises(ProblemError) as caught:
        check(change(prepared, *spoil))
    assert message in str(caught.value)


def test_padding_entries_may_hold_anything() -> None:
    """-1 past a sequence's last page is refused nowhere; the same -1 as its last page is."""
    prepared = prepare(make(table_end="minus_one"))
    pages = prepared.buffers["kv_page_indices"].writes[0].data.copy()
    assert (pages == -1).any()
    check(prepared)
    pages[0] = -1
    with pytest.raises(ProblemError, match="sequence 0 names page -1"):
        check(change(prepared, "kv_page_indices", pages))


# ---- launches


def test_right_kernel_passes_and_every_buffer_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_bench, device, _ = bench(monkeypatch)
    result = run_case(fake_bench, make(checks=("reference", "nonzero", "nan_canary", "repeat_bitwise")))
    assert (result.outcome, result.message) == ("passed", "")
    assert any(line.startswith("O agrees") for line in result.lines)
    assert "repeat_bitwise: same bits" in result.lines
    assert cast(FakeHip, device.hip).memory == {}


def unsteady(out: dict[str, np.ndarray], launch: int) -> None:
    out["o"][0, 0, 0] ^= launch


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda out, _: out["o"][3].fill(0), "1 rows of O are all zero: a page was not read"),
        (
            lambda out, _: out["o"][3, 0, 5:6].fill(0x7FC0),
            "1 of 8192 elements of O are NaN: something that no sequence owns was read",
        ),
        (lambda out, _: np.add.at(out["lse"], (0, 7), 0.01), "LSE 1 of 64 elements differ"),
        (unsteady, "repeat_bitwise: 1 of 8192 elements of O differ, first (0, 0, 0)"),
    ],
)
def test_wrong_kernel_is_wrong(monkeypatch: pytest.MonkeyPatch, spoil: Any, message: str) -> None:
    fake_bench, _, _ = bench(monkeypatch, spoil)
    masked = {"lse": True, "mask": "bottom_right", "window_right": 0, "logits_soft_cap": 30.0}
    checks = ("reference", "nonzero", "nan_canary", "repeat_bitwise")
    result = run_case(fake_bench, make(checks=checks, **masked))
    assert result.outcome == "wrong"
    assert message in result.message


def test_outcomes_that_are_no_verdict_on_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_bench, device, library = bench(monkeypatch)
    device.failure = Fault(kind="memory", message="a load\n  kernel _Z\n  pc 0x80", error=700, fields={"pc": 128})
    result = run_case(fake_bench, make())
    assert (result.outcome, result.message, result.fault) == ("fault", "a load; pc 0x80", {"pc": 128})
    for kind, error, outcome in (
        ("timeout", 702, "timeout"),
        ("unknown", 719, "infrastructure"),
        ("race", 719, "fault"),
        ("hip", 700, "fault"),
        ("hip", 702, "timeout"),
        ("hip", 999, "infrastructure"),
    ):
        device.failure = Fault(kind=kind, message="it", error=error)
        assert run_case(fake_bench, make()).outcome == outcome, kind
    assert run_case(fake_bench, make(page_size=16)).outcome == "unsupported"
    assert run_case(fake_bench, make(placement="high")).message == "this device doesn't place buffers"
    library.status = Status.UNSUPPORTED
    assert run_case(fake_bench, make()).message == "refused (unsupported): said why"
    assert cast(FakeHip, device.hip).memory == {}


def test_launch_that_runtime_refuses_has_its_explanation(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_bench, _, library = bench(monkeypatch)
    library.status = Status.HIP_ERROR
    result = run_case(fake_bench, make())
    assert (result.outcome, result.message) == ("infrastructure", "the launch failed: said why: the image was stripped")


def test_no_memory_is_infrastructure(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_bench, device, _ = bench(monkeypatch, room=20_000)
    assert run_case(fake_bench, make()).outcome == "infrastructure"
    assert cast(FakeHip, device.hip).memory == {}


def test_expected_refusal_decides_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_bench, _, library = bench(monkeypatch)
    wanted = make(expect="refused")
    assert "should be refused, but ended with ok" in run_case(fake_bench, wanted).message
    library.status = Status.BAD_PROBLEM
    assert run_case(fake_bench, wanted).outcome == "passed"
    library.status = Status.UNSUPPORTED
    assert run_case(fake_bench, wanted).outcome == "wrong"
    assert run_case(fake_bench, make(expect="unsupported")).outcome == "passed"


def test_variants_set_options_and_must_agree_in_every_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_bench, device, _ = bench(monkeypatch, unsteady, features=("granularity",))
    result = run_case(fake_bench, make(checks=("reference", "guard_page")), ({"wave_order": 0}, {"wave_order": 1}))
    assert (result.outcome, result.message) == ("wrong", "O differs between two orders of the same waves: a race")
    assert device.options == [{"granularity": 1, "wave_order": 0}, {"granularity": 1, "wave_order": 1}, {}]


def test_dispatch_that_chooses_wrong_kernel_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_bench, _, _ = bench(monkeypatch)
    masked = next(key for key in KEYS if key.mask != "no" and key.dtype == "bf16" and not key.lse)
    launch = FakeLibrary.launch
    monkeypatch.setattr(
        FakeLibrary, "launch", lambda *arguments: dataclasses.replace(launch(*arguments), kernels=(masked.name,))
    )
    result = run_case(fake_bench, make())
    assert result.outcome == "wrong"
    assert "dispatch chose" in result.message


V3_KEYS = tuple(select(dialect("prefill-v3"), Selection(archs=("gfx950",), tier="smoke")))
V3_REQUEST: dict[str, Any] = {"dtype": "fp8bf16", "qscale": "pertensor", "page_size": 16, "v3": "on"}


@pytest.mark.parametrize(
    ("obeys", "outcome", "message"),
    [
        (True, "passed", ""),
        (False, "wrong", "v3_off: dispatch chose fmha_batch_prefill_d128_fp8bf16_group_ps16_b256x64"),
    ],
)
def test_v3_is_turned_off_for_one_launch_and_v2_must_take_it(
    monkeypatch: pytest.MonkeyPatch, obeys: bool, outcome: str, message: str
) -> None:
    monkeypatch.setitem(globals(), "KEYS", V3_KEYS)
    monkeypatch.setenv("CKPM_V3", "1")
    fake_bench, _, _ = bench(monkeypatch)
    launch, switches = FakeLibrary.launch, list[str | None]()

    def dispatch(self: FakeLibrary, arguments: LaunchArguments, kernel: str | None = None) -> Launch:
        switches.append(os.environ.get("CKPM_V3"))
        assert self.current is not None
        turned = "off" if obeys and switches[-1] == "0" else "on"
        chosen = serving_kernels(V3_KEYS, dataclasses.replace(self.current.problem, v3=turned))[0].name
        return dataclasses.replace(launch(self, arguments, kernel), kernels=(chosen,))

    monkeypatch.setattr(FakeLibrary, "launch", dispatch)
    result = run_case(fake_bench, make(**V3_REQUEST, checks=("reference", "v3_off")))
    assert (result.outcome, result.message[: len(message)]) == (outcome, message)
    assert switches == ["1", "0"]
    assert os.environ["CKPM_V3"] == "1"


def test_library_without_v2_after_v3_has_nothing_to_turn_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "KEYS", V3_KEYS[:32])
    monkeypatch.delenv("CKPM_V3", raising=False)
    fake_bench, _, _ = bench(monkeypatch)
    result = run_case(fake_bench, make(**V3_REQUEST, checks=("reference", "v3_off")))
    assert (result.outcome, result.lines[-1]) == (
        "passed",
        "v3_off: not compared, the library has no such kernel of V2",
    )


# ---- devices


def test_choices_of_devices() -> None:
    with pytest.raises(UsageError, match=r"unknown device 'cuda'\. Known: emulator, hip\."):
        choose("cuda", "gfx950")
    with pytest.raises(UsageError, match="'auto' is gone: the default is emulator; --rocm"):
        choose("auto", "gfx950")


def gpus(monkeypatch: pytest.MonkeyPatch, *archs: str, current: int = 0) -> list[int]:
    """Put a runtime with a GPU of each arch in ROCm's place; return the list of GPUs that become the current one."""
    calls: list[int] = []

    class Gpus(FakeHip):
        def __init__(self, runtime: Any) -> None:
            super().__init__()

        def device_count(self) -> int:
            return len(archs)

        def properties(self, number: int = 0) -> Properties:
            return Properties(arch=archs[number], compute_units=256, memory_bytes=1 << 38)

        def current_device(self) -> int:
            return current

        def set_device(self, number: int) -> None:
            calls.append(number)

    monkeypatch.setattr("ckpm.base.rocm_places.runtime", lambda: "libc.so.6")  # anything that loads
    monkeypatch.setattr("ckpm.attention.launch.device.HipApi", Gpus)
    return calls


def test_absent_gpu_is_reported_with_present_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ckpm.base.rocm_places.runtime", lambda: None)
    with pytest.raises(DeviceError, match=r"ROCm's libamdhip64\.so is nowhere .*install ROCm's runtime"):
        choose("hip", "gfx950")
    gpus(monkeypatch, "gfx90a", "gfx942")
    with pytest.raises(DeviceError, match=r"no GPU of arch gfx950: there are gfx90a, gfx942\. Run on the emulator"):
        choose("hip", "gfx950")
    gpus(monkeypatch)
    with pytest.raises(DeviceError, match="no GPU of arch gfx950: there is none"):
        choose("hip", "gfx950")


@pytest.mark.parametrize(
    ("current", "number", "made_current"), [(3, 3, []), (0, 0, []), (1, 0, [0])], ids=["of PyTorch", "first", "other"]
)
def test_gpu_is_the_current_one_if_it_has_the_arch(
    monkeypatch: pytest.MonkeyPatch, current: int, number: int, made_current: list[int]
) -> None:
    """PyTorch allocates on the current GPU of the thread: another one would take its next tensors elsewhere."""
    calls = gpus(monkeypatch, "gfx950", "gfx90a", "gfx950", "gfx950", current=current)
    assert (choose("hip", "gfx950").number, calls) == (number, made_current)


def test_gpu_after_fault_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """ROCm that does not abort leaves the process running: every later call has the same error."""
    monkeypatch.setattr(GpuDevice, "__init__", lambda self, arch: None)
    gpu, broken = GpuDevice(""), [False]

    def synchronize() -> None:
        if broken[0]:
            raise HipError("hipDeviceSynchronize: an illegal memory access", 700)

    gpu.hip = cast(HipApi, SimpleNamespace(synchronize=synchronize))
    gpu.recover()
    assert not gpu.lost
    broken[0] = True
    assert gpu.fault() == Fault(kind="hip", message="hipDeviceSynchronize: an illegal memory access", error=700)
    gpu.recover()
    assert gpu.lost


def test_gpu_has_no_options_of_emulator() -> None:
    with pytest.raises(UsageError, match="a GPU has no option threads"):
        GpuDevice.configure(cast(GpuDevice, None), threads=1)


# ---- memory of freed pages, and sequences alone


def test_freed_pages_are_not_mapped_while_kernel_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    page = 16 * 128 * 2
    problem = make(seqlens_k=(40,), page_size=16, page_order="spread", pool_pages=100, checks=("freed_pages",))
    prepared, fake = prepare(problem), FakeDevice(("placement",))
    hip = cast(FakeHip, fake.hip)
    with launching.upload(fake, prepared.buffers) as memory:
        for name in ("k", "v"):
            base = memory[name].address
            inside = {at - base: part.size for at, part in hip.memory.items() if base <= at < base + 100 * page}
            assert inside == {0: page, 49 * page: page, 99 * page: page}
    assert hip.memory == {}


@pytest.mark.parametrize("sequence", [0, 1])
def test_each_sequence_of_batch_is_compared_with_itself_alone(monkeypatch: pytest.MonkeyPatch, sequence: int) -> None:
    def spoil(out: dict[str, np.ndarray], launch: int) -> None:
        if launch == 1 + sequence:
            out["o"][-1, 0, 5] ^= 1

    problem = make(seqlens_q=(3, 4), seqlens_k=(5, 6), checks=("batch_invariance",))
    wrong = run_case(bench(monkeypatch, spoil)[0], problem)
    assert (wrong.outcome, wrong.message.partition(",")[0]) == (
        "wrong",
        f"batch_invariance of sequence {sequence}: 1 of {(3, 4)[sequence] * 128} elements of O differ",
    )
    assert run_case(bench(monkeypatch)[0], problem).outcome == "passed"


@pytest.mark.parametrize(("launch", "rows", "label"), [(1, (0, 6), "reversed"), (2, (74, 77, 83, 85), "among others")])
def test_sequence_that_differs_in_other_batch_is_seen(
    monkeypatch: pytest.MonkeyPatch, launch: int, rows: tuple[int, ...], label: str
) -> None:
    """The larger batch has 74, 4 (sequence 1), 5 and 3 queries (sequence 0)."""

    def run(row: int) -> Result:
        def spoil(out: dict[str, np.ndarray], at: int) -> None:
            if at == launch:
                out["o"][row, 0, 5] ^= 1

        problem = make(seqlens_q=(3, 4), seqlens_k=(5, 6), checks=("batch_orders",))
        return run_case(bench(monkeypatch, spoil)[0], problem)

    for wrong in map(run, rows):
        assert wrong.message.startswith(f"batch_orders {label}: 1 of {7 * 128} elements of O differ")
        assert (wrong.outcome, wrong.same_batches) == ("wrong", ())
    for passed in map(run, {73, 78, 82} if launch == 2 else ()):  # rows of the others
        assert (passed.outcome, passed.same_batches) == ("passed", ("batch_orders",))

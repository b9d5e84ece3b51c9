"""HIP programs run with `python -m ckpm_emulator run` print what their sources state.

None of them is written for the emulator. Expectations come from NumPy, the manuals, or ROCm.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from ckpm_emulator import code_object, standalone, toolchain
from ckpm_emulator.errors import DeviceError, OutputError
from programs.program_builder import ARCHS, bundle, sample

ROOT = Path(__file__).parents[1]
ILLEGAL_ADDRESS, NOT_SUPPORTED = "hipErrorIllegalAddress", "hipErrorNotSupported"


def run(
    *arguments: str | Path,
    options: tuple[str, ...] = (),
    stdin: bytes = b"",
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """The finished run of a program on the emulated device."""
    command = [sys.executable, "-m", "ckpm_emulator", "run", *options, "--", *map(str, arguments)]
    environment = {**os.environ, **(variables or {})}
    return subprocess.run(command, cwd=ROOT, env=environment, input=stdin, capture_output=True, check=False)


def output(*arguments: str | Path, options: tuple[str, ...] = (), stdin: bytes = b"") -> bytes:
    """The output of a program that ended well, without a report of the emulator or the dynamic loader."""
    done = run(*arguments, options=options, stdin=stdin)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


@pytest.mark.parametrize("arch", ARCHS)
def test_saxpy_on_two_streams(arch: str) -> None:
    n = 1000
    y = np.frombuffer(output(sample("saxpy"), str(n), "2.0", options=("--arch", arch)), np.float32)
    i = np.arange(2 * n)
    assert (y == 2.0 * (i % 1000) + i % 7).all()


@pytest.mark.parametrize("arch", ARCHS)
def test_atomics_and_dynamic_lds(arch: str) -> None:
    data = np.random.default_rng(15).integers(0, 250, 5000).astype(np.uint8)
    counts = np.frombuffer(output(sample("histogram"), stdin=data.tobytes(), options=("--arch", arch)), np.uint32)
    assert (counts[:256] == np.bincount(data, minlength=256)).all()
    assert counts[256] == data.max()


@pytest.mark.parametrize("arch", ARCHS)
def test_arithmetic_in_f64(arch: str) -> None:
    out = np.frombuffer(output(sample("doubles"), options=("--arch", arch)), np.float64)
    i = np.arange(1, 9 * 128 + 1, dtype=np.longdouble)
    expected = np.sqrt(i) / (i + np.longdouble(1) / 3)
    assert np.allclose(out[:-9], expected.astype(np.float64), rtol=3e-16, atol=0)
    assert np.allclose(out[-9:], expected.reshape(9, 128).sum(axis=1).astype(np.float64), rtol=1e-14, atol=0)


# LDS of a workgroup: 64 KiB (CDNA3 ISA document), 160 KiB (CDNA4's). The kernel has 64 KiB.
@pytest.mark.parametrize(("arch", "lds", "resident"), [("gfx942", 65536, 1), ("gfx950", 163840, 2)])
def test_symbols_rectangles_and_queries(arch: str, lds: int, resident: int) -> None:
    text = output(sample("queries"), options=("--arch", arch, "--cus", "17")).decode()
    answers = dict(line.split(" ", 1) for line in text.splitlines())
    assert answers.pop("arch").partition(":")[0] == arch
    assert {name: int(value) for name, value in answers.items()} == {
        **{"table0": 4 * 7, "table3": 1 * 7, "third_by_address": 2 * 7},  # read in reverse, times the value of the host
        **{"wide_enough": 1, "sum": 3 * 9 * 5},
        **{"warp": 64, "lds": lds, "compute_units": 17, "peer": 0},
        **{"kernel_lds": 65536, "kernel_threads": 256, "resident": resident},
    }


# Numbers that ROCm's runtime answers (clr, hip_device_runtime.cpp) but the two whose values are addresses.
ATTRIBUTES = {
    *(set(range(91 + 1)) - {21, 33, 34, 35, 36, 37, 38, 40, 45, 46, 47, 48, 52, 54, 55, 64, 77, 80, 86}),
    *(10002, *range(10007, 10017 + 1)),
}
IMAGES = (32, 39, 41, 42, 43, 44, 49, 50, 51, 53, 10014)  # gfx9 with matrix instructions has no textures or surfaces


def test_attributes_are_those_of_rocm() -> None:
    lines = output(sample("queries"), "attributes", options=("--cus", "17")).decode().splitlines()
    attributes = {int(number): int(value) for number, value in (line.split() for line in lines)}
    assert sorted(ATTRIBUTES - set(attributes)) == []
    assert [attributes[number] for number in IMAGES] == [0] * len(IMAGES)
    assert attributes[63] == attributes[10015] == 17  # compute units


def test_fault_is_error_of_call_and_report() -> None:
    done = run(sample("failures"), "write")
    assert done.returncode == DeviceError.exit_code  # the program itself ends with 0
    assert done.stdout.decode().split() == [ILLEGAL_ADDRESS, ILLEGAL_ADDRESS]
    report = done.stderr.decode()
    assert "kernel fill" in report
    assert "store of 4 bytes" in report
    assert "workgroup (1, 0, 0) wave 0 lane 36" in report  # element 100: 64 threads in the first
    assert "right after the end of allocation" in report
    # nothing about the later calls
    assert report.count("emulator: ") == 2
    assert report.splitlines()[-1] == "emulator: the program ignored a fault: exit code 7"


def test_absent_function_is_named_at_end() -> None:
    done = run(sample("failures"), "absent")
    assert done.stdout.decode().split() == [NOT_SUPPORTED, NOT_SUPPORTED]
    assert done.stderr.decode().splitlines() == [
        f"emulator: answered {NOT_SUPPORTED}, for want of these functions: hipCtxSynchronize (2 calls)"
    ]


def test_counters_at_end(tmp_path: Path) -> None:
    file = tmp_path / "counters.json"
    output(sample("saxpy"), "1000", "2.0", options=("--counters", str(file)))
    (counted,) = json.loads(file.read_text())["kernels"].values()
    assert (counted["launches"], counted["workgroups"], counted["waves"]) == (2, 2 * 4, 2 * 16)
    assert (counted["global_load_bytes"], counted["global_store_bytes"]) == (2 * 1000 * 8, 2 * 1000 * 4)
    assert [path.name for path in tmp_path.iterdir()] == ["counters.json"]


def test_counters_that_cannot_be_written_set_exit_code(tmp_path: Path) -> None:
    """The program removes the folder of the file, which was there at its start."""
    file = tmp_path / "gone" / "counters.json"
    file.parent.mkdir()
    command = ("sh", "-c", 'rmdir "$1"; exec "$2" 1000 2.0', "sh", file.parent, sample("saxpy"))
    done = run(*command, options=("--counters", str(file)))
    assert done.returncode == OutputError.exit_code
    assert "the counters can't be written: No such file or directory" in done.stderr.decode()


def test_checks_are_on_with_option() -> None:
    done = run(sample("failures"), "write", options=("--checks", "nonsense"))
    assert done.returncode == 7
    assert b"no such check: nonsense" in done.stderr
    output(sample("saxpy"), "1000", "2.0", options=("--checks", "all"))


def test_memory_that_is_never_freed_is_reported() -> None:
    """The histogram's program frees neither its bytes nor its 257 counts of 4 bytes; saxpy's frees all."""
    done = run(sample("histogram"), stdin=b"abc", options=("--checks", "all"))
    assert done.returncode == 0
    (report,) = done.stderr.decode().splitlines()
    assert report.startswith("emulator: never freed: 2 allocations of 1031 bytes together")
    output(sample("saxpy"), "1000", "2.0", options=("--checks", "leaks"))
    assert run(sample("histogram"), stdin=b"abc", options=("--checks", "leaks")).returncode == 8


def test_run_of_missing_program_is_refused() -> None:
    done = run("no-such-program")
    assert done.returncode == 3
    assert b"no-such-program is not there" in done.stderr
    assert b"Traceback" not in done.stderr


def test_process_without_decoder_prints_reason() -> None:
    settings = {"CKPM_EMULATOR": "option.arch=950", "LD_LIBRARY_PATH": str(_library_folder())}
    done = subprocess.run(
        [sample("saxpy"), "10", "1"], env={**os.environ, **settings}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert "CKPM_EMULATOR names no decoder" in done.stderr


def _library_folder() -> Path:
    return standalone.library_folder(toolchain.library())


# ---- modules


def _code(arch: str) -> bytes:
    return dict(code_object.code_objects(sample("failures")))[arch]


def _zstd(plain: bytes) -> bytes:
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_compress.restype = library.ZSTD_compressBound.restype = ctypes.c_size_t
    room = library.ZSTD_compressBound(ctypes.c_size_t(len(plain)))
    packed = ctypes.create_string_buffer(room)
    size: int = library.ZSTD_compress(packed, ctypes.c_size_t(room), plain, ctypes.c_size_t(len(plain)), 3)
    return packed.raw[:size]


def _compress(version: int, method: int, pack: Callable[[bytes], bytes], plain: bytes) -> bytes:
    """A bundle with magic, version, method and sizes: of the plain bundle (1), of the file, too (2), in 64 bits (3)."""
    body, head = pack(plain), b"CCOB" + struct.pack("<HH", version, method)
    layout = {1: "<I", 2: "<II", 3: "<QQ"}[version]
    total = len(head) + struct.calcsize(layout) + 8 + len(body)
    sizes = (len(plain),) if version == 1 else (total, len(plain))
    return head + struct.pack(layout, *sizes) + bytes(8) + body


def _module(file: Path, content: bytes, arch: str = "gfx950") -> subprocess.CompletedProcess[bytes]:
    file.write_bytes(content)
    return run(sample("failures"), "module", file, options=("--arch", arch))


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize(("method", "pack"), [(0, zlib.compress), (1, _zstd)])
def test_compressed_bundle_runs(tmp_path: Path, version: int, method: int, pack: Callable[[bytes], bytes]) -> None:
    host, device = "host-x86_64-unknown-linux-gnu-", "hipv4-amdgcn-amd-amdhsa--"
    plain = bundle({host: b"", **{f"{device}{arch}": _code(arch) for arch in ARCHS}})
    done = _module(tmp_path / "code", _compress(version, method, pack, plain))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"630\n", b"")  # 70 times 9


def test_bare_elf_is_identified_by_flags(tmp_path: Path) -> None:
    assert _module(tmp_path / "code", _code("gfx942"), "gfx942").stdout == b"630\n"
    other = _module(tmp_path / "code", _code("gfx942"), "gfx950")
    assert (other.returncode, other.stdout) == (5, b"hipErrorNoBinaryForGpu\n")
    assert b"it has code for gfx942; the emulated device is gfx950" in other.stderr


@pytest.mark.parametrize("cut", [10, 40, 100])
def test_damaged_compressed_bundle_is_refused(tmp_path: Path, cut: int) -> None:
    whole = _compress(2, 0, zlib.compress, bundle({"hipv4-amdgcn-amd-amdhsa--gfx950": _code("gfx950")}))
    done = _module(tmp_path / "code", whole[:-cut])
    assert (done.returncode, done.stdout) == (5, b"hipErrorInvalidImage\n")
    assert b"damaged or truncated" in done.stderr


# ---- the store of programs


def test_stored_program_is_used_and_damaged_one_made_again(tmp_path: Path) -> None:
    """A process without decoder runs only stored programs, after a check."""
    settings = _settings(tmp_path)
    no_helper = "\n".join(line for line in settings.splitlines() if not line.startswith("decoder="))

    def saxpy(text: str) -> int:
        variables = {"CKPM_EMULATOR": text, "LD_LIBRARY_PATH": str(_library_folder()), "CKPM_CACHE": str(tmp_path)}
        command = [str(sample("saxpy")), "10", "1"]
        return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, check=False).returncode

    assert saxpy(no_helper) != 0
    assert saxpy(settings) == 0
    assert saxpy(no_helper) == 0
    (entry,) = (tmp_path / "emulator" / "programs").glob("*.entry")
    whole = bytearray(entry.read_bytes())
    whole[-1] ^= 1
    entry.write_bytes(whole)
    assert saxpy(no_helper) != 0
    assert saxpy(settings) == 0
    assert saxpy(no_helper) == 0
    entry.chmod(0o666)  # other users can write it
    assert saxpy(no_helper) != 0


def _settings(cache: Path) -> str:
    """The environment of `emulator run`, with another store."""
    code = (
        "from ckpm_emulator import standalone; from ckpm_emulator.options import Options;"
        "print(standalone.settings(standalone.Run(command=['x'], options=Options())))"
    )
    variables = {**os.environ, "CKPM_CACHE": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=variables, capture_output=True, text=True, check=True
    )
    return done.stdout


# ---- compiled unmodified by either toolchain (`--toolchain rocm`: hipcc)

THREADS, N = 192, 1000  # of a workgroup, as in the program; the last workgroup is not full


@pytest.mark.parametrize("arch", ARCHS)
def test_ordinary_program_prints_statistics(arch: str) -> None:
    *printed, total, bins, largest, events = (
        output(sample("whole"), str(N), options=("--arch", arch)).decode().split("\n")[:-1]
    )
    x = (np.arange(N) + 0.5) * (5.0 / N)
    values = np.sin(x) ** 2 + x**1.5 * np.tanh(x) / np.sqrt(x + 1)
    sums = {int(line.split()[1].rstrip(":")): float(line.split()[2]) for line in printed}
    assert len(printed) == len(sums) == -(-N // THREADS)
    for workgroup, value in sums.items():
        assert value == pytest.approx(values[workgroup * THREADS :][:THREADS].sum(), rel=1e-14)
    assert float(total.removeprefix("sum ")) == pytest.approx(values.sum(), rel=1e-14)
    assert [int(word) for word in bins.split()] == np.bincount(values.astype(int), minlength=6).tolist()
    (top,) = struct.unpack("<d", struct.pack("<Q", int(largest.removeprefix("largest "), 16)))
    assert top == pytest.approx(values.max(), rel=1e-15)
    assert events == "events in order"


@pytest.mark.parametrize("arch", ARCHS)
def test_launches_between_events(arch: str, tmp_path: Path) -> None:
    """The time of an unrecorded event is hipErrorInvalidHandle (HIP's manual, hipEventElapsedTime)."""
    program, module = sample("launching"), tmp_path / "module"
    module.write_bytes(dict(code_object.code_objects(program))[arch])
    *results, values = output(program, module, options=("--arch", arch, "--quiet")).decode().splitlines()
    recorded, not_recorded = "hipSuccess", "hipErrorInvalidHandle"
    assert results == [not_recorded, recorded, recorded, recorded, recorded, not_recorded, recorded]
    assert values == f"{1 + 10 + 2 * 100 + 2 * 1000} {1 + 10 + 2 * 100 + 2 * 1000}"

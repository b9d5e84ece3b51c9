"""The Python side of the C ABI has the C side's layout and numbers, and reports what is wrong with a library."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpm.attention.launch import c_abi
from ckpm.attention.launch.device import Device
from ckpm.base.errors import LibraryError
from ckpm.base.files import sha256_of
from ckpm.base.settings import cache_folder
from ckpm.kernels import abi
from ckpm.kernels.abi import AppendKvArguments, BwdArguments, CheckedArguments, FwdArguments, LaunchArguments
from ckpm.kernels.code.toolchains import Toolchain, detect
from ckpm.kernels.families.family import INCLUDE, INCLUDE_BWD, INCLUDE_FWD
from ckpm.kernels.families.libraries import host
from ckpm.kernels.families.spellings import features
from tests.unit.attention.fakes import FakeDevice

ENUMS = {
    "CKPM_": abi.Status,
    "CKPM_MASK_": abi.Mask,
    "CKPM_BIAS_": abi.Bias,
    "CKPM_QSCALE_": abi.QScale,
    "CKPM_KV_": abi.KvLayout,
    "CKPM_TABLE_": abi.KvTable,
}


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    return detect("embedded", cache=cache_folder())


@pytest.fixture
def compile_c(toolchain: Toolchain, tmp_path: Path) -> Callable[..., Path]:
    """``compile_c(text)``: an object of C text that may include ckpm.h; fails with the compiler's words."""

    def compile_text(text: str) -> Path:
        (tmp_path / "part.c").write_text(text)
        # ckpm.h asks for no more than clang's own headers
        resources = toolchain.search[toolchain.search.index("-resource-dir") + 1]
        command = [*toolchain.compiler, "--target=x86_64-unknown-linux-gnu", "-std=c11", "-ffreestanding", "-fPIC"]
        command += ["-nostdlibinc", "-resource-dir", resources, "-I", str(INCLUDE)]
        command += ["-c", str(tmp_path / "part.c"), "-o", str(tmp_path / "part.o")]
        _run(command, toolchain)
        return tmp_path / "part.o"

    return compile_text


@pytest.fixture
def library(toolchain: Toolchain, compile_c: Callable[..., Path], tmp_path: Path) -> Callable[..., Path]:
    """``library(text)``: a shared library of C text that needs no other library."""

    def link(text: str) -> Path:
        output = tmp_path / "libpart.so"
        _run([toolchain.compiler[0], "ld.lld", "-shared", str(compile_c(text)), "-o", str(output)], toolchain)
        return output

    return link


def _run(command: list[str], toolchain: Toolchain) -> None:
    run = subprocess.run(command, env={**os.environ, **toolchain.environment}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    ("arguments", "header"),
    [
        (LaunchArguments, INCLUDE / "ckpm.h"),
        (FwdArguments, INCLUDE_FWD / "ckpm_fwd.h"),
        (AppendKvArguments, INCLUDE_FWD / "ckpm_appendkv.h"),
        (BwdArguments, INCLUDE_BWD / "ckpm_bwd.h"),
    ],
)
def test_layout_is_that_of_header(
    compile_c: Callable[..., Path], arguments: type[CheckedArguments], header: Path
) -> None:
    struct = f"{arguments.START}_problem"
    facts = [f"sizeof({struct}) == {ctypes.sizeof(arguments)}"]
    facts.append(f"{arguments.START.upper()}_ABI_VERSION == {arguments.VERSION}")
    end = 0
    for name in arguments.kinds():
        field = getattr(arguments, name)
        facts.append(f"offsetof({struct}, {name}) == {field.offset}")
        facts.append(f"sizeof((({struct}*)0)->{name}) == {field.size}")
        assert field.offset == end  # without a gap but at the end, equal sizes and offsets mean equal fields
        end += field.size
    assert ctypes.sizeof(arguments) - end < 8
    compile_c(f'#include "{header}"\n' + "".join(f'_Static_assert({fact}, "");\n' for fact in facts))


def test_numbers_are_those_of_header(compile_c: Callable[..., Path]) -> None:
    facts = [f"{prefix}{member.name} == {member.value}" for prefix, enum in ENUMS.items() for member in enum]
    compile_c('#include "ckpm.h"\n' + "".join(f'_Static_assert({fact}, "");\n' for fact in facts))


@pytest.mark.parametrize("family", ["fwd", "fwd_pagedkv", "fwd_splitkv", "fwd_v3", "fwd_appendkv", "bwd_dq_dk_dv"])
def test_harness_reads_or_refuses_every_field(family: str) -> None:
    text = host(family).harness("ck-2025-11", features("ck-2025-11"))
    assert [name for name in host(family).arguments.kinds() if not re.search(rf"\bp\.{name}\b", text)] == []


def test_problem_knows_its_version() -> None:
    assert (LaunchArguments().struct_bytes, LaunchArguments().abi_version) == (ctypes.sizeof(LaunchArguments), 2)


def test_problem_is_not_changed_but_copied() -> None:
    problem = LaunchArguments(data_type="bf16", q=1 << 40, batch=3, scale_s=0.5)
    with pytest.raises(AttributeError, match=r"use replace\(batch=...\)"):
        problem.batch = 4
    other = problem.replace(batch=4)
    assert (problem.batch, other.batch, other.q, other.data_type, other.scale_s) == (3, 4, 1 << 40, b"bf16", 0.5)
    assert repr(other).endswith("abi_version=2, data_type='bf16', q=1099511627776, batch=4, scale_s=0.5)")


def test_problem_has_no_other_fields() -> None:
    with pytest.raises(TypeError, match="ckpm_problem has no field 'bathc'"):
        LaunchArguments(bathc=1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"batch_stride_k": 2**31}, "batch_stride_k = 2147483648 does not fit int"),
        ({"window_left": -(2**31) - 1}, "window_left = -2147483649 does not fit int"),
        ({"dropout_seed": 2**64}, "dropout_seed = 18446744073709551616 does not fit ulong"),
        ({"data_type": "a" * 16}, "data_type 'aaaaaaaaaaaaaaaa' is longer than 15 bytes"),
    ],
)
def test_values_are_never_cut(values: dict[str, object], message: str) -> None:
    with pytest.raises(OverflowError) as caught:
        LaunchArguments(**values)
    assert str(caught.value) == message


def library_source(name: str) -> str:
    """C of a library with one kernel, whose name is a C expression; its launches end with status 77."""
    answers = {"int abi_version(void)": "2", "long problem_bytes(void)": str(ctypes.sizeof(LaunchArguments))}
    answers |= {
        "const char* dialect(void)": '"d"',
        "int kernel_count(void)": "1",
        "const char* kernel_name(int n)": name,
    }
    answers |= {"const char* selected_kernel(void)": "0", "int launch()": "77"}
    starts = re.sub(r"(\w+\()", r"ckpm_\1", "\n".join(answers)).splitlines()
    return "\n".join(f"{start} {{ return {value}; }}" for start, value in zip(starts, answers.values(), strict=True))


def of_version(version: int, size: int) -> str:
    """C of a library whose C ABI is of another version."""
    text = f"int ckpm_abi_version(void) {{ return {version}; }} long ckpm_problem_bytes(void) {{ return {size}; }}"
    return text + "int ckpm_dialect, ckpm_kernel_count, ckpm_kernel_name, ckpm_launch, ckpm_selected_kernel;"


BYTES = ctypes.sizeof(LaunchArguments)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"libpart\.so: it can't be loaded: .*No such file"),
        ("int hipNowhere(void); int f(void) { return hipNowhere(); }",
         r"undefined symbol: hipNowhere. Load a libamdhip64.so with RTLD_GLOBAL"),
        ("int f(void) { return 0; }", r"no library of ckpm's kernels: .*ckpm_abi_version"),
        (of_version(1, BYTES), rf"is version 1 with a problem of {BYTES} bytes, .* Build it again: ckpm"),
        (of_version(2, BYTES - 8), rf"is version 2 with a problem of {BYTES - 8} bytes, .* Build it again: ckpm"),
        (library_source("0"), r"\.so: damaged: a name in it is not text\. Build it again: ckpm build"),
        (library_source(r'"k\xff"'), r"\.so: damaged: a name in it is not text\. Build it again: ckpm build"),
    ],
)  # fmt: skip
def test_library_that_cannot_be_used_is_refused(
    library: Callable[..., Path], tmp_path: Path, text: str | None, message: str
) -> None:
    with pytest.raises(LibraryError, match=message) as caught:
        c_abi.load(library(text) if text else tmp_path / "libpart.so", LaunchArguments)
    assert caught.value.exit_code == 6


def test_library_of_newer_system_names_remedy(library: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    file = library("int f(void) { return 0; }")

    def refuse(*_: object, **__: object) -> None:
        raise OSError("libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by libckpm.so)")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    with pytest.raises(LibraryError, match=r"not found .*\. It was built on a newer system: build it again here"):
        c_abi.load(file, LaunchArguments)


class Loader(FakeDevice):
    """A device that opens libraries."""

    load = Device.load
    replaced_by: Path | None = None

    def prepare(self, path: Path) -> None:
        if self.replaced_by is not None:
            self.replaced_by.replace(path)


def test_library_that_was_replaced_is_refused(library: Callable[..., Path], tmp_path: Path) -> None:
    """The loader returns a library that the process has by its path, whatever is there now."""
    first, second, third = (
        Path(shutil.copy(library(library_source(f'"{name}"')), tmp_path / f"{name}.so")) for name in "klm"
    )
    digests = [sha256_of(file) for file in (first, second)]
    assert Loader().load(first, LaunchArguments, digests[0]).kernels == ("k",)
    second.replace(first)
    with pytest.raises(LibraryError, match=r"it was replaced after it was registered: its sha256 is .*, and was "):
        Loader().load(first, LaunchArguments, digests[0])
    with pytest.raises(LibraryError, match=r"this process has loaded another library from this path\. Start a new"):
        Loader().load(first, LaunchArguments, digests[1])
    changing, device = Path(shutil.copy(first, tmp_path / "changing.so")), Loader()
    device.replaced_by = third
    with pytest.raises(LibraryError, match="it was replaced while it was loaded"):
        device.load(changing, LaunchArguments, digests[1])
    with pytest.raises(LibraryError, match=r"it can't be read: .*Build it first"):
        Loader().load(tmp_path / "missing.so", LaunchArguments, digests[0])


def test_launch_that_ends_as_none_does_is_damage(library: Callable[..., Path]) -> None:
    loaded = c_abi.load(library(library_source('"k"')), LaunchArguments)
    assert loaded.kernels == ("k",)
    with pytest.raises(LibraryError, match=r"\.so: damaged: a launch ended with status 77\. Build it again: ckpm"):
        loaded.launch(LaunchArguments())


def test_kernel_is_named_only_where_c_abi_takes_name() -> None:
    called = []

    def launch(*arguments: object) -> int:
        called.append(arguments)
        return 0

    def open_library(arguments: type[abi.CheckedArguments]) -> c_abi.Library:
        calls = {"launch": launch, "selected_kernel": lambda *stage: b"k%d" % (stage[0] if stage else 9)}
        path = Path("libckpm.so")
        return c_abi.Library(
            path=path, family="f", dialect="d", kernels=(), arguments=arguments, abi=ctypes.CDLL(None), calls=calls
        )

    named = open_library(LaunchArguments).launch(LaunchArguments(), "k9")
    assert (called[0][1], named.kernels, named.kernel) == (b"k9", ("k9",), "k9")
    staged = open_library(FwdArguments).launch(FwdArguments())
    assert (len(called[1]), staged.kernels) == (len(called[0]) - 1, ("k0", "k1"))
    with pytest.raises(TypeError, match=r"^ckpm_fwd_launch takes no kernel's name$"):
        open_library(FwdArguments).launch(FwdArguments(), "k")
    assert len(called) == 2

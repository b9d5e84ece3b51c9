"""Executables from HIP sources, built by ziglang's clang with the emulator's HIP headers or by hipcc, and cached.

ziglang has no HIP runtime to link with. A program is linked with a library of names only, with ROCm's SONAME and symbol
versions. The runtime of a program is chosen when it starts.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import re
import shlex
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from elftools.elf.elffile import ELFFile

from ckpm_emulator.cache import cache_folder, draft_for
from programs import device_library
from programs.clang import compile_source, zig, zig_environment

TOOLCHAIN = "CKPM_PROGRAMS"
CHOICES = ("embedded", "rocm")
SOURCES = Path(__file__).with_name("hip")
INCLUDE = SOURCES / "include"
HEADERS = Path(__file__).parents[2] / "kernels" / "hip"  # of the clone: nothing else of it is used
DEVICE_LIBRARY = "device_library.h"  # programs that include it are linked with ROCm's device library
ARCHS = ("gfx942", "gfx950")
SONAME = "libamdhip64.so.6"
EXPORTS = Path(__file__).parents[1] / "core" / "exports.map"
FLAGS = (
    *("-x", "hip", "-std=c++17", "-O3", "-fPIC", "-DNDEBUG", "-D__HIP_PLATFORM_AMD__=1"),
    "-fgpu-flush-denormals-to-zero",
)
_TARGET = ("-target", "x86_64-linux-gnu.2.28")
_LINK = ("-O2", "-Wl,--build-id=none", "-Wl,--strip-debug")


@functools.cache
def symbol_versions() -> dict[str, str]:
    """The version of each function of ROCm's runtime."""
    nodes = re.findall(r"^(hip_[\d.]+)\n\{\n  global:([^}]*?)(?:local:|\})", EXPORTS.read_text(), re.MULTILINE)
    return {name: version for version, names in nodes for name in re.findall(r"(\w+);", names)}


def uses_rocm() -> bool:
    """True if the variable CKPM_PROGRAMS names hipcc as the compiler."""
    return os.environ.get(TOOLCHAIN) == "rocm"


def header_folders() -> list[Path]:
    """Folders of HIP's headers for a compiler that has none."""
    return [] if uses_rocm() else [INCLUDE]


@functools.cache
def identity() -> tuple[str, ...]:
    """The texts on which every compiled file depends."""
    headers = [file.read_text() for folder in (HEADERS, SOURCES) for file in sorted(folder.rglob("*.h"))]
    compiler = _run([_hipcc(), "--version"], "hipcc") if uses_rocm() else f"ziglang {version('ziglang')}"
    return compiler, EXPORTS.read_text(), Path(__file__).read_text(), *headers


def sample(name: str, *options: str) -> Path:
    """The executable of hip/NAME.hip, compiled with further options of clang."""
    source = SOURCES / f"{name}.hip"
    needs_library = f'"{DEVICE_LIBRARY}"' in source.read_text() and not uses_rocm()
    extra = (*options, *(device_library.flags() if needs_library else ()))
    folder = cache_of(name, *identity(), *ARCHS, source.read_text(), *extra)
    program = folder / name
    if not program.is_file():
        unit = compile_object(source, folder / f"{name}.o", archs=ARCHS, includes=header_folders(), extra=extra)
        link([unit], program)
    return program


def cache_of(name: str, *parts: str) -> Path:
    """The folder of the cache for outputs that depend on these parts."""
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    folder = cache_folder().parent / "programs" / f"{name}-{key}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def compile_object(
    source: Path, output: Path, *, archs: Sequence[str], includes: Sequence[Path] = (), extra: Sequence[str] = ()
) -> Path:
    """Compile a source for the host and ``archs``, unless the object is there."""
    if output.is_file():
        return output
    cuid = hashlib.sha256(f"{source.name}\0{source.read_text()}".encode()).hexdigest()[:16]
    folders = [word for folder in includes for word in ("-isystem", str(folder))]
    options = [*FLAGS, f"-cuid={cuid}", *folders]
    with draft_for(output, output.parent) as draft:
        if uses_rocm():
            targets = [f"--offload-arch={arch}" for arch in archs]
            command = [_hipcc(), "--no-offload-compress", *options, *targets, *extra]
        else:
            options += [*("-isystem", str(HEADERS)), *_host_flags(), *extra]
            binary = draft.with_suffix(".hipfb")
            codes = {f"hipv4-amdgcn-amd-amdhsa--{arch}": _device_code(source, arch, options) for arch in archs}
            binary.write_bytes(bundle({"host-x86_64-unknown-linux-gnu-": b"", **codes}))
            embedded = ("-Xclang", "-fcuda-include-gpubinary", "-Xclang", str(binary))
            command = [zig(), "clang", *options, "--offload-host-only", f"--offload-arch={archs[0]}", *embedded]
        _run([*command, "-c", str(source), "-o", str(draft)], source.name)
    return output


def _device_code(source: Path, arch: str, options: Sequence[str]) -> bytes:
    """The code object of a source. clang's own driver would link it with a program that ziglang lacks."""
    with tempfile.TemporaryDirectory() as folder:
        assembly = Path(folder, f"{source.stem}.s")
        device = ("--offload-device-only", f"--offload-arch={arch}", "-S")
        _run([zig(), "clang", *options, *device, str(source), "-o", str(assembly)], source.name)
        return compile_source(assembly, arch, "-x", "assembler")


@functools.cache
def _host_flags() -> tuple[str, ...]:
    """clang's options for the C++ library that zig links with, out of the command that zig starts for a C++ file."""
    command = [zig(), "c++", *_TARGET, "-###", "-c", "-x", "c++", os.devnull]
    done = subprocess.run(command, env=zig_environment(), capture_output=True, text=True, check=True)
    *_, line = (line for line in done.stderr.splitlines() if '"-cc1"' in line)
    tokens = shlex.split(line)
    pairs = [(option, value) for option, value in itertools.pairwise(tokens) if option in ("-isystem", "-D")]
    plain = ("--target=x86_64-unknown-linux-gnu", "-nogpuinc", "-nogpulib", "-nostdinc", "-nostdinc++")
    return *plain, *(token for pair in pairs for token in pair)


def bundle(entries: Mapping[str, bytes]) -> bytes:
    """Code objects by target in one file (clang's documentation, "Clang Offload Bundler")."""
    head = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(entries))
    at = len(head) + sum(24 + len(name) for name in entries)
    table, data = b"", b""
    for name, content in entries.items():
        table += struct.pack("<QQQ", at + len(data), len(content), len(name)) + name.encode()
        data += content
    return head + table + data


def compile_host(source: Path, output: Path, *options: str) -> Path:
    """Compile a source in C or C++ for the host, unless the object is there."""
    if not output.is_file():
        with draft_for(output, output.parent) as draft:
            _run([*_linker(), *options, "-c", str(source), "-o", str(draft)], source.name)
    return output


def link(objects: Sequence[Path], output: Path) -> Path:
    """Link objects into an executable."""
    with draft_for(output, output.parent) as draft:
        command = [*_linker(), *map(str, objects)]
        if uses_rocm():
            command.append("--hip-link")
        else:  # parts of ROCm's compiler and runtime that ziglang lacks
            conversion = compile_host(SOURCES / "bf16.c", draft.with_name("bf16.o"), "-x", "c")
            command += [str(conversion), str(_names_only(objects, draft.parent))]
        _run([*command, "-o", str(draft)], output.name)
    return output


def _linker() -> list[str]:
    return [_hipcc()] if uses_rocm() else [zig(), "c++", *_TARGET, *_LINK]


def _names_only(objects: Sequence[Path], folder: Path) -> Path:
    """Make a library that exports the HIP functions which objects import, under ROCm's versions, with no code."""
    names = sorted(_imports(objects))
    source, script, library = folder / "names.c", folder / "names.map", folder / "libamdhip64.so"
    source.write_text("".join(f"void {name}(void) {{}}\n" for name in names))
    by_version: dict[str, list[str]] = {}
    for name in names:
        by_version.setdefault(symbol_versions()[name], []).append(name)
    nodes = (f"{version} {{ global: {'; '.join(names)}; }};\n" for version, names in sorted(by_version.items()))
    script.write_text("".join(nodes))
    command = [*_linker(), "-shared", f"-Wl,-soname,{SONAME}", f"-Wl,--version-script={script}", "-x", "c"]
    _run([*command, str(source), "-o", str(library)], SONAME)
    return library


def _imports(objects: Sequence[Path]) -> set[str]:
    """Names of undefined HIP symbols."""
    names: set[str] = set()
    for file in objects:
        with file.open("rb") as stream:
            table = ELFFile(stream).get_section_by_name(".symtab")
            names |= {symbol.name for symbol in table.iter_symbols() if symbol["st_shndx"] == "SHN_UNDEF"}
    return {name for name in names if name in symbol_versions()}


def _hipcc() -> str:
    folder = os.environ.get("ROCM_PATH", "/opt/rocm")
    return shutil.which("hipcc", path=f"{folder}/bin") or "hipcc"


def _run(command: Sequence[str], name: str) -> str:
    done = subprocess.run(command, env=zig_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{name}: {' '.join(command)}\n{done.stderr[-4000:]}"
    return done.stdout

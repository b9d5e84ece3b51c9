"""Executables from HIP sources, built by the embedded toolchain in hipcc's way or by hipcc, and kept in the cache.

The embedded toolchain has no runtime to link with. It links with a library of names only, with ROCm's SONAME and symbol
versions. The runtime of a program is chosen when it starts.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import yaml

from ckpm.base.settings import cache_folder
from ckpm.kernels.code import toolchains
from ckpm.kernels.code.toolchains import Toolchain
from tests.programs import device_library

TOOLCHAIN = "CKPM_PROGRAMS"
DATA = Path(__file__).parents[1] / "data" / "programs"
INCLUDE = DATA / "include"
DEVICE_LIBRARY = "device_library.h"  # programs that include it are linked with ROCm's device library
ARCHS = ("gfx942", "gfx950")
SONAME = "libamdhip64.so.6"
SYMBOLS = DATA / "hip_symbols.yaml"


@cache
def symbol_versions() -> dict[str, str]:
    """The version of each function of ROCm's runtime."""
    read = yaml.safe_load(SYMBOLS.read_text())
    groups = [*read["library"].items(), *read["younger"].items()]
    return {name: version for version, names in groups for name in names}


def toolchain() -> Toolchain:
    """The toolchain of the variable CKPM_PROGRAMS, by default the embedded one."""
    return toolchains.detect(os.environ.get(TOOLCHAIN, "embedded"), cache=cache_folder())


def _of_rocm(tc: Toolchain) -> bool:
    return tc.name == "rocm"


def header_folders(tc: Toolchain) -> list[Path]:
    """Folders of HIP's headers for a toolchain that has none."""
    return [] if _of_rocm(tc) else [INCLUDE]


def sample(name: str, *options: str) -> Path:
    """The executable of tests/data/programs/NAME.hip, compiled with further options of clang."""
    tc, source = toolchain(), DATA / f"{name}.hip"
    needs_library = f'"{DEVICE_LIBRARY}"' in source.read_text() and not _of_rocm(tc)
    extra = (*options, *(device_library.flags() if needs_library else ()))
    headers = [file.read_text() for file in sorted(DATA.rglob("*.h"))]
    folder = cache_of(
        name,
        *toolchains.describe(tc).values(),
        *ARCHS,
        source.read_text(),
        *headers,
        SYMBOLS.read_text(),
        Path(__file__).read_text(),
        *extra,
    )
    program = folder / name
    if not program.is_file():
        unit = compile_object(tc, source, folder / f"{name}.o", archs=ARCHS, includes=header_folders(tc), extra=extra)
        link(tc, [unit], program)
    return program


def cache_of(name: str, *parts: str) -> Path:
    """The folder of the cache for outputs that depend on these parts."""
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    folder = cache_folder() / "programs" / f"{name}-{key}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def compile_object(
    tc: Toolchain,
    source: Path,
    output: Path,
    *,
    archs: Sequence[str],
    includes: Sequence[Path],
    extra: Sequence[str] = (),
) -> Path:
    """Compile a source for ``archs``, unless the object is there."""
    if output.is_file():
        return output
    with tempfile.TemporaryDirectory(dir=output.parent) as folder:
        draft = Path(folder) / output.name
        cuid = hashlib.sha256(f"{source.name}\0{source.read_text()}".encode()).hexdigest()[:16]
        command = toolchains.compile_command(
            tc,
            archs=archs,
            source=str(source),
            output=str(draft),
            includes=[str(include) for include in includes],
            cuid=cuid,
            prefix_map={},
            extra=extra,
        )
        _run(command, tc.environment, source.name)
        draft.replace(output)
    return output


def link(tc: Toolchain, objects: Sequence[Path], output: Path) -> Path:
    """Link objects into an executable."""
    with tempfile.TemporaryDirectory(dir=output.parent) as folder:
        draft = Path(folder) / output.name
        if _of_rocm(tc):
            command = [*tc.linker, "--hip-link", *map(str, objects)]
        else:
            command = [*tc.linker, *_plain_flags(tc), *map(str, objects), *_stand_ins(tc, objects, Path(folder))]
        _run([*command, "-o", str(draft)], tc.environment, output.name)
        draft.replace(output)
    return output


def _plain_flags(tc: Toolchain) -> list[str]:
    return [flag for flag in tc.link_flags if flag != "-shared"]


def _stand_ins(tc: Toolchain, objects: Sequence[Path], folder: Path) -> tuple[str, ...]:
    """Replacements of parts of ROCm's compiler and runtime that zig's lacks."""
    conversion = folder / "bf16.o"
    command = [*tc.linker, *_plain_flags(tc), "-x", "c", "-c", str(DATA / "bf16.c"), "-o", str(conversion)]
    _run(command, tc.environment, "bf16.c")
    return str(conversion), str(_names_only(tc, objects, folder))


def _names_only(tc: Toolchain, objects: Sequence[Path], folder: Path) -> Path:
    """Make a library that exports the HIP functions which objects import, under ROCm's versions, with no code."""
    names = sorted(_imports(objects))
    source, script, library = folder / "names.c", folder / "names.map", folder / "libamdhip64.so"
    source.write_text("".join(f"void {name}(void) {{}}\n" for name in names))
    by_version: dict[str, list[str]] = {}
    for name in names:
        by_version.setdefault(symbol_versions()[name], []).append(name)
    nodes = (f"{version} {{ global: {'; '.join(names)}; }};\n" for version, names in sorted(by_version.items()))
    script.write_text("".join(nodes))
    command = [*tc.linker, *tc.link_flags, f"-Wl,-soname,{SONAME}", f"-Wl,--version-script={script}", "-x", "c"]
    _run([*command, str(source), "-o", str(library)], tc.environment, SONAME)
    return library


def _imports(objects: Sequence[Path]) -> set[str]:
    """Names of undefined HIP symbols."""
    from elftools.elf.elffile import ELFFile  # a reader of our requirements

    names: set[str] = set()
    for file in objects:
        with file.open("rb") as stream:
            table = ELFFile(stream).get_section_by_name(".symtab")
            names |= {symbol.name for symbol in table.iter_symbols() if symbol["st_shndx"] == "SHN_UNDEF"}
    return {name for name in names if name in symbol_versions()}


def _run(command: Sequence[str], environment: Mapping[str, str], what: str) -> None:
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{what}: {' '.join(command)}\n{done.stderr[-4000:]}"

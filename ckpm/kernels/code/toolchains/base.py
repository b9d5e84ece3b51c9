"""The record of a toolchain, its command lines, its compiler's version. Nothing here touches the file system.

Flags that affect the output are separate from machine paths, so that build signatures contain only the flags.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ckpm.base.errors import SetupError
from ckpm.base.processes import tool_environment

# Flags of all toolchains: those of CK's own build of its FMHA kernels.
# NDEBUG: a release build; with it no assert of CK's headers is left in device code.
# FAST_EXP2 and flushed denormals belong together: exp2 is then one v_exp_f32 (CK's FMHA build file pairs them too).
KERNEL_FLAGS = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-DNDEBUG",
    "-D__HIP_PLATFORM_AMD__=1",
    "-DCK_TILE_FMHA_FWD_FAST_EXP2=1",
    "-fgpu-flush-denormals-to-zero",
)


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """A compiler and linker with everything needed to call them.

    ``identity``, ``flags`` and ``link_flags`` hold no machine paths and belong into build signatures and manifests;
    ``compiler``, ``linker``, ``search`` and ``environment`` hold machine paths and belong into neither.
    """

    name: str
    identity: str
    compiler: tuple[str, ...]
    search: tuple[str, ...]
    flags: tuple[str, ...]
    linker: tuple[str, ...]
    link_flags: tuple[str, ...]
    environment: Mapping[str, str]


def version_output(
    command: Sequence[str], environment: Mapping[str, str], repair: str
) -> subprocess.CompletedProcess[str]:
    """Run a compiler that prints its version. ``repair`` is the advice of the error if it can't be started."""
    try:
        return subprocess.run(
            command, env=tool_environment(environment), capture_output=True, text=True, errors="replace", timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"{command[0]} can't be started ({error}): {repair}", kind="toolchain") from error


def compile_command(
    tc: Toolchain,
    *,
    archs: Sequence[str],
    source: str,
    output: str,
    includes: Sequence[str],
    cuid: str,
    prefix_map: Mapping[str, str],
    extra: Sequence[str] = (),
    device_only: bool = False,
) -> list[str]:
    """Return the command that makes one host object with the code objects of all ``archs`` inside.

    ``device_only`` makes the bare AMDGPU ELF code object of one arch, without a host part.
    ``cuid`` (16 hex digits of a content hash) names the unit's symbols: without it clang derives them from the path.
    ``prefix_map`` maps machine paths to fixed words; __FILE__ then reads the same in every checkout.
    ``includes`` are passed as system folders: warnings of upstream's headers are not ours to fix.
    """
    return [
        *tc.compiler,
        *tc.flags,
        *(("--offload-device-only", "--no-gpu-bundle-output") if device_only else ()),
        *(f"--offload-arch={arch}" for arch in archs),
        f"-cuid={cuid}",
        *(f"-ffile-prefix-map={old}={new}" for old, new in prefix_map.items()),
        *(word for folder in includes for word in ("-isystem", folder)),
        *tc.search,
        *extra,
        *("-c", source, "-o", output),
    ]


def link_command(tc: Toolchain, *, objects: Sequence[str], output: str, version_script: str, soname: str) -> list[str]:
    """Return the command that links ``objects`` to a shared library exporting the symbols of ``version_script``.

    HIP symbols stay undefined and no DT_NEEDED names a HIP library. The program that loads the result first loads a
    ``libamdhip64.so`` of its choice (a GPU's or an emulator's) with RTLD_GLOBAL.
    Many objects: write ``response_text(objects)`` to a file and pass ``objects=["@file"]``.
    """
    return [
        *tc.linker,
        *tc.link_flags,
        f"-Wl,--version-script={version_script}",
        f"-Wl,-soname,{soname}",
        *("-o", output),
        *objects,
    ]


def response_text(objects: Sequence[str]) -> str:
    """Return the content of a response file (``@file``) naming ``objects``, one quoted path a line."""
    quoted = (path.replace("\\", "\\\\").replace('"', '\\"') for path in objects)
    return "".join(f'"{path}"\n' for path in quoted)

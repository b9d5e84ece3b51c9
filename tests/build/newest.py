"""Libraries of the newest dialect, whose CK can't be had here: built for the host against a declared interface.

tests/data/interface_2026 declares what CK of 2026 gives to batch prefill. Units, dispatch and harness are compiled for
the host with the embedded toolchain and linked with a fake HIP runtime; the C ABI is called through
ckpm/kernels/abi.py.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import itertools
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ckpm.attention.launch.c_abi import Library, load
from ckpm.base.settings import cache_folder
from ckpm.kernels.abi import CheckedArguments, LaunchArguments
from ckpm.kernels.code.toolchains import Toolchain, compile_command, detect, link_command
from ckpm.kernels.families import spellings
from ckpm.kernels.families.family import INCLUDE
from ckpm.kernels.families.render import Unit, dispatch_text, render
from ckpm.kernels.library.request import VERSION_SCRIPT
from ckpm.matrix.dialects import dialect
from ckpm.matrix.keys import Key
from ckpm.matrix.selection import Selection, select

DIALECT = "rocm-libraries-2026"
INTERFACE = Path(__file__).resolve().parent.parent / "data" / "interface_2026"
MASK_IMPLS = ("simplified", "generic")
FIVE, EIGHT = "five", "eight"  # parameters of fmha_batch_prefill_select_kv_load_mode
FORMS = [(mask_impl, form) for mask_impl in MASK_IMPLS for form in (FIVE, EIGHT)]
NO_DEVICE = 100  # hipErrorNoDevice


@functools.cache
def all_keys(mask_impl: str) -> list[Key]:
    return select(dialect(DIALECT), Selection(archs=("gfx950",), mask_impl=mask_impl))


AXES = (
    *("dtype", "hdim_q", "tile", "logits", "qscale", "mask", "bias", "lse", "dropout", "sink"),
    *("kv_layout", "kv_table", "page_size", "load"),
)


def sample(mask_impl: str) -> list[Key]:
    """The smoke tier, and kernels that show every pair of axis values that occurs; in upstream's order."""
    smoke = select(dialect(DIALECT), Selection(archs=("gfx950",), mask_impl=mask_impl, tier="smoke"))
    every = all_keys(mask_impl)
    kept = {key.name for key in smoke}
    seen: set[tuple[tuple[str, Any], ...]] = set()
    for key in sorted(every, key=lambda key: hashlib.sha256(key.name.encode()).digest()):
        values = [(axis, getattr(key, axis)) for axis in AXES]
        pairs = set(itertools.combinations(values, 2))
        if not pairs <= seen:
            seen |= pairs
            kept.add(key.name)
    return [key for key in every if key.name in kept]


class Compiler:
    """The embedded toolchain's host side over the headers of ``includes``."""

    def __init__(self, folder: Path, includes: Sequence[Path] = (INTERFACE,)) -> None:
        self.folder = folder
        self.includes = [str(include) for include in (*includes, INCLUDE)]
        self.toolchain: Toolchain = detect("embedded", cache=cache_folder())

    def _run(self, command: Sequence[str]) -> None:
        run = subprocess.run(
            command, env={**os.environ, **self.toolchain.environment}, capture_output=True, text=True, timeout=1800
        )
        messages = [line for line in run.stderr.splitlines() if line and "-Wunused-command-line-argument" not in line]
        assert (run.returncode, messages) == (0, []), "\n".join(messages)

    def compile(self, source: Path, *extra: str) -> str:
        identity = "\0".join((source.name, str(source.parent), *extra))
        cuid = hashlib.sha256(identity.encode()).hexdigest()[:16]
        output = self.folder / f"{source.stem}.{cuid}.o"
        # what the host side does is tested, not how fast: unoptimised it compiles in an eighth of the time
        self._compile(source, output, "gfx950", "--offload-host-only", "-O0", *extra, cuid=cuid)
        return str(output)

    def preprocess(self, source: Path, arch: str) -> str:
        """The text of a unit for the device pass of ``arch``."""
        output = self.folder / f"{source.stem}.{arch}.ii"
        self._compile(source, output, arch, "-E", cuid="0" * 16, device_only=True)
        return output.read_text()

    def _compile(
        self, source: Path, output: Path, arch: str, *extra: str, cuid: str, device_only: bool = False
    ) -> None:
        self._run(
            compile_command(
                self.toolchain,
                archs=[arch],
                source=str(source),
                output=str(output),
                includes=self.includes,
                cuid=cuid,
                prefix_map={},
                extra=extra,
                device_only=device_only,
            )
        )

    def link(self, name: str, objects: Sequence[str], arguments: type[CheckedArguments] = LaunchArguments) -> Library:
        library = self.folder / f"{name}.so"
        self._run(
            link_command(
                self.toolchain,
                objects=objects,
                output=str(library),
                version_script=str(VERSION_SCRIPT),
                soname=library.name,
            )
        )
        return load(library, arguments)


def units_of(keys: Sequence[Key]) -> list[Unit]:
    """Two large units, for the headers take most of the time; in earnest units.plan makes small ones."""
    return [Unit(word, tuple(key for key in keys if key.load == word)) for word in ("bload", "gload")]


def build_samples(compiler: Compiler, samples: Mapping[str, list[Key]]) -> Mapping[tuple[str, str], Library]:
    """The samples' libraries by masks and selector form; units are compiled once for both forms."""
    runtime = compiler.compile(INTERFACE / "fake_runtime.hip")
    libraries = {}
    for mask_impl, keys in samples.items():
        units = units_of(keys)
        for form in (FIVE, EIGHT):
            features = spellings.features(DIALECT, selector_takes_base=form == EIGHT)
            folder = compiler.folder / mask_impl / form
            files = render(keys, units, DIALECT, features, folder)
            extra = ("-DINTERFACE_2026_FIVE",) if form == FIVE else ()
            host = [compiler.compile(file, *extra) for file in (*files["dispatch"], *files["harness"])]
            if form == FIVE:
                kernels = [compiler.compile(file) for file in files["units"]]
            libraries[mask_impl, form] = compiler.link(f"lib{mask_impl}_{form}", [*kernels, *host, runtime])
    return libraries


def build_whole(compiler: Compiler) -> Library:
    """The dispatch over every kernel with simplified masks. Kernels are stubs that note their name."""
    folder = compiler.folder / "whole"
    folder.mkdir()
    features = spellings.features(DIALECT, selector_takes_base=True)
    (folder / "dispatch.hip").write_text(dispatch_text(all_keys("simplified"), features))
    sources = [folder / "dispatch.hip", compiler.folder / "simplified" / EIGHT / "harness.hip"]
    sources += [INTERFACE / "stubs.hip", INTERFACE / "fake_runtime.hip"]
    objects = [compiler.compile(source, "-DINTERFACE_2026_STUBS") for source in sources]
    return compiler.link("libwhole", objects)


def fake(
    library: Library,
    *,
    cus: int = 256,
    device: int = 0,
    launch: int = 0,
    stale: int = 0,
    throws: str | None = None,
    name: str = "gfx950",
) -> None:
    """Set the fake runtime: compute units, errors of asking for the device and of launching, an exception, a name."""
    library.abi.ckpm_fake_set_device(name.encode())
    library.abi.ckpm_fake_set(cus, device, launch, stale, None if throws is None else throws.encode())


def record(library: Library) -> dict[str, str]:
    """The arguments of the last launch; empty if there was none."""
    library.abi.ckpm_fake_record.restype = ctypes.c_char_p
    return dict(line.split("=", 1) for line in library.abi.ckpm_fake_record().decode().splitlines())

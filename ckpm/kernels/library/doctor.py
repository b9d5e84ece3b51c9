"""``ckpm doctor``: check what a build needs on this machine; list what is missing and how to get it."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ckpm.base import jobs, rocm_places, settings
from ckpm.base.console import console, make_table
from ckpm.base.errors import CkPrefillError
from ckpm.base.files import name_write_errors
from ckpm.base.rocm_choice import rocm_wanted
from ckpm.base.store import BESIDE, Store, is_adopted, is_whole_entry
from ckpm.base.trust import refuse_shared
from ckpm.base.zig_cache import linked_with
from ckpm.kernels.code.bf16 import CHOICE, TRUNCATING, bf16_conversion
from ckpm.kernels.code.toolchains import compile_command, detect, rocm
from ckpm.kernels.library.request import features_for
from ckpm.kernels.upstream.codegen_runner import difference_from_dialect
from ckpm.kernels.upstream.trees import checkout, damage, is_unpacked, locate, package_folder
from ckpm.matrix.dialects import PackagedUpstream, compute_units, upstreams
from ckpm.matrix.options import DEFAULT_ARCH, DEFAULT_UPSTREAM

# Free space that a first build needs: upstream trees, the compiler's cache, objects of the smoke tier.
_NEEDED_BYTES = 3_000_000_000
_OLDEST_PYTHON = (3, 11)


@dataclass(frozen=True, slots=True)
class Examination:
    """One row. ``state`` is ok, missing (it will be fetched or is optional), damaged (it is made again when needed) or
    broken (a build would fail).
    """

    subject: str
    state: str
    detail: str
    advice: str = ""


def examine(cache: Path, ck_root: Path | None) -> list[Examination]:
    """Return all findings; nothing is downloaded or built."""
    pinned, rocm_compiler, gpu = _toolchain("embedded", cache), _rocm(cache), _gpu()
    return [
        _python(),
        _system(),
        pinned,
        rocm_compiler,
        *_upstreams(cache, ck_root),
        gpu,
        _default_road(pinned),
        _rocm_road(rocm_compiler, gpu),
        _cache(cache),
        *_entries(cache),
        _resources(),
    ]


def _python() -> Examination:
    version = platform.python_version()
    if tuple(map(int, platform.python_version_tuple()[:2])) < _OLDEST_PYTHON:
        return Examination("python", "broken", version, f"install Python {'.'.join(map(str, _OLDEST_PYTHON))} or newer")
    return Examination("python", "ok", version)


def _system() -> Examination:
    machine = f"{platform.system()} on {platform.machine()}"
    if machine != "Linux on x86_64":
        return Examination(
            "system", "broken", machine, "libraries are built on Linux on x86-64 alone: use such a machine"
        )
    return Examination("system", "ok", machine)


def _toolchain(name: str, cache: Path) -> Examination:
    try:
        return Examination(f"toolchain {name}", "ok", detect(name, cache=cache).identity)
    except CkPrefillError as error:
        return Examination(f"toolchain {name}", "broken", "not usable", str(error))


def _rocm(cache: Path) -> Examination:
    if not (compiler := rocm.locate()):
        return Examination("toolchain rocm", "missing", "no ROCm", "optional: install ROCm, or set ROCM_PATH")
    finding = _toolchain("rocm", cache)
    finding = replace(finding, detail=f"{finding.detail}, {compiler}")
    package = upstreams()[DEFAULT_UPSTREAM]
    if finding.state != "ok" or not is_unpacked(package, cache) or damage(package, cache):
        return finding
    try:
        bf16 = _conversion(cache)
    except CkPrefillError as error:
        return replace(finding, state="broken", advice=str(error))
    advice = f"CK truncates with HIP before 6.5: build with -D{CHOICE}=3 to round to nearest"
    return replace(finding, detail=f"{finding.detail}, bf16: {bf16}", advice=advice if bf16 in TRUNCATING else "")


def _conversion(cache: Path) -> str:
    """The conversion to bf16 in what ROCm's compiler makes of the default upstream."""
    compiler, tree = detect("rocm", cache=cache), locate(DEFAULT_UPSTREAM, cache=cache)
    folders = [str(folder) for folder in tree.includes]
    command = compile_command(
        compiler, archs=(DEFAULT_ARCH,), source="", output="", includes=folders, cuid="0", prefix_map={}
    )
    return bf16_conversion(command, compiler.environment)


def _upstreams(cache: Path, ck_root: Path | None) -> list[Examination]:
    packages = [_package(name, package, cache) for name, package in upstreams().items()]
    if ck_root is None:
        advice = "optional: set CK_ROOT to a CK repository or rocm-libraries"
        return [*packages, Examination("upstream checkout", "missing", "CK_ROOT is not set", advice)]
    try:
        tree = checkout(ck_root, cache)
    except CkPrefillError as error:
        return [*packages, Examination("upstream checkout", "broken", str(ck_root), str(error))]
    state, remarks = "ok", [*tree.remarks]
    try:
        features_for(tree)
    except CkPrefillError as error:
        state, remarks = "broken", [str(error), *remarks]
    try:
        difference = difference_from_dialect(tree, ("batch_prefill",), tuple(compute_units()), cache)
        remarks += [f"its codegen lists other kernels: {line}" for line in difference.lines()[:1]]
    except CkPrefillError as error:
        remarks += [f"its names are not compared: {error}"]
    detail = f"{tree.root}, dialect {tree.dialect}"
    return [*packages, Examination("upstream checkout", state, detail, "; ".join(remarks))]


def _package(name: str, package: PackagedUpstream, cache: Path) -> Examination:
    """Check every file of an unpacked tree, about 10 MB."""
    subject, what = f"upstream {name}", f"{package.package} {package.version}, {package.summary}"
    if not is_unpacked(package, cache):
        folder = package_folder(package, cache)
        if folder.is_dir():
            advice = "is downloaded again by the next build; or correct its tree in matrix/upstreams.yaml"
            return Examination(subject, "damaged", f"{what}: {folder} has no tree {package.tree}", advice)
        if others := sorted(folder.parent.glob(f"{package.base}-{package.version}-{'[0-9a-f]' * 64}")):
            other = f"{what}: the cached file has another sha256, {others[0].name.rpartition('-')[2]}"
            advice = f"correct the sha256 in matrix/upstreams.yaml ({package.sha256}), or delete {others[0]}"
            return Examination(subject, "broken", other, advice)
        return Examination(subject, "missing", what, "is downloaded by the first build that needs it")
    if damaged := damage(package, cache):
        more = f" and {len(damaged) - 1} more" if len(damaged) > 1 else ""
        again = f"delete {package_folder(package, cache)}: it is unpacked again"
        return Examination(subject, "broken", f"{what}: {damaged[0]}{more}", again)
    return Examination(subject, "ok", what)


def _gpu() -> Examination:
    archs = ", ".join(rocm_places.gpu_archs())
    if not archs:
        return Examination("GPU", "missing", "none", "optional: the emulator runs what was built")
    if not os.access(rocm_places.KFD, os.R_OK | os.W_OK):
        return Examination(
            "GPU", "missing", "/dev/kfd is not accessible", "add this user to the groups render and video"
        )
    if (runtime := rocm_places.runtime()) is None:
        return Examination("GPU", "missing", f"{archs}, no libamdhip64.so", "install ROCm's runtime, or set ROCM_PATH")
    return Examination("GPU", "ok", f"{archs}, {runtime}")


def _default_road(pinned: Examination) -> Examination:
    """A row about commands without ``--rocm``."""
    advice = "" if pinned.state == "ok" else "see toolchain embedded"
    return Examination("without --rocm", pinned.state, "builds with the pinned compiler, runs on the emulator", advice)


def _rocm_road(compiler: Examination, gpu: Examination) -> Examination:
    """A row about commands with ``--rocm``, which is broken only if the environment asks for ROCm."""
    able = [finding.state == "ok" for finding in (compiler, gpu)]
    detail = f"{'builds' if able[0] else 'builds nothing'}, {'runs on the GPU' if able[1] else 'runs nothing'}"
    missing = [finding.subject for finding in (compiler, gpu) if finding.state != "ok"]
    state = "ok" if all(able) else "broken" if rocm_wanted() and not able[0] else "missing"
    return Examination("with --rocm", state, detail, f"see {' and '.join(missing)}" if missing else "")


def _cache(cache: Path) -> Examination:
    """Check that a temporary file can be written into the cache, or into the folder where it will be made."""
    there = next(folder for folder in (cache, *cache.parents) if os.path.lexists(folder))
    try:
        refuse_shared(cache)
        with name_write_errors(there, "set CKPM_CACHE to another folder"), tempfile.TemporaryFile(dir=there):
            free = shutil.disk_usage(there).free
    except CkPrefillError as error:
        return Examination("cache", "broken", str(cache), str(error))
    text = f"{cache}, {free / 1e9:.0f} GB free"
    if free < _NEEDED_BYTES:
        return Examination(
            "cache", "broken", text, f"needs {_NEEDED_BYTES / 1e9:.0f} GB: set CKPM_CACHE to another disk"
        )
    return Examination("cache", "ok", text)


def _entries(cache: Path) -> Iterator[Examination]:
    """Check every entry of the cache; yield a row for each kind with damaged entries."""
    for kind, files, is_whole in (
        ("decoded programs", Store(cache / "emulator/programs").entries(), is_whole_entry),
        ("inspections", Store(cache / "emulator/inspections").entries(), is_whole_entry),
        ("parity", Store(cache / "parity").entries(), is_whole_entry),
        ("the emulator's core", _with_digests(cache / "emulator", "core-*"), is_adopted),
        ("compiled units", _with_digests(cache / "objects", "??"), is_adopted),
        ("libraries compiled on demand", _with_digests(cache / "jit/entries", "*"), is_adopted),
        ("what zig links with", [file for own in cache.glob("zig/*") for file in linked_with(own)], is_adopted),
        ("launchers", sorted((cache / "launchers").glob("*/")), _is_whole_launcher),
    ):
        if damaged := [file for file in files if not _or_gone(is_whole, file)]:
            yield Examination(
                f"cache: {kind}",
                "damaged",
                f"{len(damaged)} of {len(files)} are not as they were written: {damaged[0]}",
                "nothing: they are made again when they are needed. If this comes back, look at the disk",
            )


def _or_gone(is_whole: Callable[[Path], bool], file: Path) -> bool:
    """True if a file is whole, or vanished meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        return is_whole(file) or not file.exists()
    return True


def _with_digests(top: Path, *folders: str) -> list[Path]:
    """Return the files that have their sha256 beside them; files without are never used."""
    digests = (file for folder in folders for file in top.glob(f"{folder}/*{BESIDE}"))
    return sorted(file.with_suffix("") for file in digests)


def _is_whole_launcher(folder: Path) -> bool:
    """True if the folder's name is the digest of its texts (ckpm/kernels/code/toolchains/embedded.py)."""
    texts = (folder / name for name in ("lld", "clang-offload-bundler"))
    return hashlib.sha256(b"\0".join(text.read_bytes() for text in texts)).hexdigest()[:16] == folder.name


def _resources() -> Examination:
    memory = jobs.available_bytes()
    text = f"{jobs.processors()} processors" + (f", {memory / 1e9:.1f} GB of memory" if memory else "")
    if memory is not None and memory < jobs.UNIT_BYTES:
        advice = f"a merged unit takes {jobs.UNIT_BYTES / 1e9:.1f} GB: build with --unit-size 1"
        return Examination("jobs", "broken", text, advice)
    return Examination("jobs", "ok", f"{text}: {jobs.job_count()} compilers at once")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ck-root", type=Path, default=None, help="a CK checkout; default: CK_ROOT")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the findings; return 1 if a build would fail."""
    findings = examine(settings.cache_path(), settings.ck_root(args.ck_root))
    table = make_table(("", "what", "found", "what to do"), fold=True)
    for finding in findings:
        table.add_row(finding.state, finding.subject, finding.detail, finding.advice)
    console().print(table)
    return 1 if any(finding.state == "broken" for finding in findings) else 0

"""The request of a build: select keys, render them, plan the graph. command.py runs SCons on the plan.

Output in ``build/<arch>/<upstream>/`` (``<upstream>-fwd`` for the fwd library): ``libckpm.so``, ``manifest.json``,
``plan.json``, ``compile_commands.json``, ``src/`` and ``obj/``.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpm.base import settings
from ckpm.base.errors import UpstreamError, UsageError
from ckpm.base.files import write_if_changed
from ckpm.base.paths import PROJECT, data
from ckpm.base.processes import python_command
from ckpm.kernels.code.toolchains import Toolchain, compile_command, describe, link_command
from ckpm.kernels.families.libraries import host, is_default, library_of
from ckpm.kernels.families.render import DEFAULT_SIZE, Unit, plan_units, render
from ckpm.kernels.families.spellings import Features
from ckpm.kernels.families.spellings import features as features_of
from ckpm.kernels.library.manifest import MANIFEST
from ckpm.kernels.library.plan import BuildPlan, BuildStep, signature
from ckpm.kernels.library.write_manifest import makers
from ckpm.kernels.upstream import headers
from ckpm.kernels.upstream.codegen_runner import difference_from_dialect
from ckpm.kernels.upstream.tree import Tree
from ckpm.matrix.defects import split
from ckpm.matrix.dialects import dialect, upstreams
from ckpm.matrix.keys import Key
from ckpm.matrix.selection import Selection, select_some

log = logging.getLogger(__name__)
LIBRARY = "libckpm.so"
VERSION_SCRIPT = data("kernels", "ckpm.map")


@dataclass(frozen=True, kw_only=True)
class BuildRequest:
    """A library to build and its folders. ``work`` contains ``build/``; without ``object_cache`` nothing is shared."""

    selection: Selection
    tree: Tree
    toolchain: Toolchain
    work: Path
    object_cache: Path | None
    unit_size: int = DEFAULT_SIZE

    @property
    def library(self) -> str:
        """The library that the selected families make."""
        return library_of(self.selection.families, self.tree.dialect, bool(self.tree.own))

    @property
    def folder(self) -> str:
        """The output folder relative to the work folder."""
        return f"build/{'+'.join(self.selection.archs)}/{folder_name(self.tree.name, self.library)}"

    @property
    def headers(self) -> tuple[Path, ...]:
        """The folders of our own headers that the library's sources include."""
        return host(self.library).headers


def folder_name(upstream: str, library: str) -> str:
    """The last part of an output folder: ``aiter``, ``aiter-fwd``."""
    return upstream if is_default(library) else f"{upstream}-{library}"


def prepare(request: BuildRequest) -> tuple[BuildPlan, list[Key]]:
    """Select, render and plan without compiling. If the plan changes, the library of the old plan is deleted."""
    features = features_for(request.tree)
    selected = select_some(dialect(request.tree.dialect), request.selection)
    selected = listed_by_tree(request, selected)
    keys, left_out = split(selected, request.tree.dialect)
    for family in {key.family for key in selected} - {key.family for key in keys}:
        count = sum(key.family == family for key in selected)
        reasons = "; ".join(f"{defect.name}: {defect.reason}" for defect in left_out if defect.family == family)
        raise UsageError(
            f"none of the {count} selected kernels of {family} compiles with this CK. {reasons}.",
            kind="empty-selection",
        )
    units = plan_units(keys, request.unit_size)
    folder = request.work / request.folder
    files = render(keys, units, request.tree.dialect, features, folder / "src")
    unbuilt = {d.name: {"reason": d.reason, "kernels": [key.name for key in group]} for d, group in left_out.items()}
    plan = _plan(request, units, files["units"], [*files["dispatch"], *files["harness"]], unbuilt)
    text = plan.text()
    if not _holds(folder / "plan.json", text):
        # first: an interrupt must not leave the old library beside the new plan
        discard_library(request)
    headers.write(folder, request.tree.headers)
    write_if_changed(folder / "plan.json", text)
    write_if_changed(folder / "compile_commands.json", _compile_commands(request, plan))
    return plan, keys


def features_for(tree: Tree) -> Features:
    """Return the features that the templates need for a tree."""
    features = features_of(tree.dialect, selector_takes_base=tree.selector_takes_base)
    if features.own_headers and not tree.own:
        upstream_names = ", ".join(name for name, row in upstreams().items() if row.dialect == tree.dialect)
        raise UsageError(
            f"{tree.root} is of dialect {tree.dialect}, whose C++ needs our own headers: "
            f"build --upstream {upstream_names}."
        )
    return features


def listed_by_tree(request: BuildRequest, selected: list[Key]) -> list[Key]:
    """Return the kernels that a checkout's own codegen lists, too, and log how its list differs from the dialect's.

    Kernels of other trees are returned as they are. A checkout must list one of the selected kernels.
    """
    tree, chosen = request.tree, request.selection
    if tree.name != "checkout":
        return selected
    try:
        difference = difference_from_dialect(
            tree, chosen.families, chosen.archs, settings.cache_folder(), chosen.receipt, chosen.mask_impl
        )
    except UpstreamError as error:
        log.info(f"note: the names of {tree.root} are not compared with dialect {tree.dialect}: {error}")
        return selected
    if difference.same:
        return selected
    summary = f"{tree.root} lists other kernels than dialect {tree.dialect}: {difference.lines()[0]}"
    log.info(f"note: {summary}. Missing ones are not built: the dialect's tables lack them. Extra ones are left out.")
    extra = set(difference.extra)
    if not (left := [key for key in selected if key.name not in extra]):
        raise UsageError(f"no selected kernel is listed by the tree's codegen. {summary}.", kind="empty-selection")
    return left


def _plan(
    request: BuildRequest,
    units: Sequence[Unit],
    unit_files: Sequence[Path],
    host_files: Sequence[Path],
    unbuilt: Mapping[str, object],
) -> BuildPlan:
    toolchain, folder = request.toolchain, request.folder
    identity = identity_of(request)
    # the longest first, or it would run alone at the end: SCons starts nodes in this order
    by_length = sorted(zip(unit_files, units, strict=True), key=lambda pair: -_seconds(pair[1]))
    names = [(file, tuple(key.name for key in unit.keys)) for file, unit in by_length]
    compiled = [
        compile_step(request, identity, file, kernels)
        for file, kernels in [*names, *((file, ()) for file in host_files)]
    ]
    objects = [step.target for step in compiled]
    library = f"{folder}/{LIBRARY}"
    link = link_command(toolchain, objects=objects, output=library, version_script=str(VERSION_SCRIPT), soname=LIBRARY)
    linked = BuildStep(
        kind="library",
        target=library,
        sources=tuple(objects),
        argv=tuple(link),
        signature=signature(identity, toolchain.link_flags, VERSION_SCRIPT.read_text()),
        label=LIBRARY,
    )
    manifest = BuildStep(
        kind="manifest",
        target=f"{folder}/{MANIFEST}",
        sources=(library, f"{folder}/plan.json", *objects),
        argv=manifest_command(folder),
        signature=signature(makers(request.selection.archs)),
        label=MANIFEST,
    )
    return BuildPlan(
        folder=folder,
        steps=(*compiled, linked, manifest),
        environment=toolchain.environment,
        facts=_facts(request, unbuilt),
    )


def _facts(request: BuildRequest, unbuilt: Mapping[str, object]) -> dict[str, object]:
    """The facts of a library in its manifest, besides its kernels."""
    return {
        "library": LIBRARY,
        "archs": list(request.selection.archs),
        "upstream": request.tree.name,
        "upstream_identity": request.tree.identity,
        "dialect": request.tree.dialect,
        "mask_impl": request.selection.mask_impl,
        "selection": request.selection.summary(),
        "unit_size": request.unit_size,
        "left_out": unbuilt,
        **describe(request.toolchain),
    }


def identity_of(request: BuildRequest) -> tuple[str, ...]:
    """Identities on which every output depends besides sources and flags: toolchain, upstream, our own headers."""
    return (request.toolchain.identity, request.tree.identity, *map(_digest, request.headers))


def compile_step(request: BuildRequest, identity: tuple[str, ...], file: Path, kernels: tuple[str, ...]) -> BuildStep:
    """Return the step that compiles a source file: a unit with its kernels, or a file of the host side.

    ``identity`` is :func:`identity_of` the request.
    """
    source = f"{request.folder}/src/{file.name}"
    target = f"{request.folder}/obj/{file.stem}.o"
    # dispatch and harness contain no kernel: their device pass is left out
    extra = () if kernels else ("--offload-host-only", "-Wno-unused-command-line-argument")
    cuid = hashlib.sha256(f"{request.folder}\0{file.name}\0".encode() + file.read_bytes()).hexdigest()[:16]
    argv = compile_command(
        request.toolchain,
        archs=request.selection.archs,
        source=source,
        output=target,
        includes=[str(folder) for folder in (*request.tree.includes, *request.headers)],
        cuid=cuid,
        prefix_map={str(request.tree.root): "ck", str(PROJECT): "ckpm"},
        extra=extra,
    )
    return BuildStep(
        kind="unit" if kernels else "host",
        target=target,
        sources=(source,),
        argv=tuple(argv),
        signature=signature(identity, request.toolchain.flags, request.selection.archs, extra, cuid),
        label=file.stem,
        kernels=kernels,
        headers=signature(identity),
    )


def manifest_command(folder: str) -> tuple[str, ...]:
    """The command that writes manifest.json beside the plan of an output folder."""
    return python_command("-m", "ckpm.kernels.library.write_manifest", f"{folder}/plan.json")


def _seconds(unit: Unit) -> float:
    """Estimate a unit's compile time: headers, then each kernel, larger tiles longer (measured, embedded clang)."""
    return 12 + sum(8 * (1 + key.tile.bm0 * key.hdim_q / (256 * 128)) for key in unit.keys)


def _digest(folder: Path) -> str:
    """Return the sha256 of the names and bytes of a small folder of our own headers."""
    total = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            total.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes())
    return total.hexdigest()


def _holds(file: Path, text: str) -> bool:
    try:
        return file.read_bytes() == text.encode()
    except OSError:
        return False


def _compile_commands(request: BuildRequest, plan: BuildPlan) -> str:
    """Return the compilation database that clangd and other tools read."""
    entries = [
        {"directory": str(request.work), "file": step.sources[0], "output": step.target, "arguments": list(step.argv)}
        for step in plan.steps
        if step.kind in ("unit", "host")
    ]
    return json.dumps(entries, indent=1) + "\n"


def scons_command(plan_file: str, jobs: int, object_cache: Path | None, cluster: str = "") -> list[str]:
    """The command of SCons on one plan: prints only events, goes on after failures. ``cluster``: a file of machines."""
    # no site_scons that lies in the work folder is run
    command = [*python_command("-m", "SCons", "--no-site-dir", "-f", str(PROJECT / "SConstruct"))]
    command += ["--keep-going", "-Q"]
    command += ["-j", str(jobs), f"plan={plan_file}"]
    command += [f"cache={object_cache}"] if object_cache else []
    return [*command, f"cluster={cluster}"] if cluster else command


def discard_library(request: BuildRequest) -> None:
    """Delete library and manifest: the plan changed, or the build failed."""
    for name in (LIBRARY, MANIFEST):
        (request.work / request.folder / name).unlink(missing_ok=True)

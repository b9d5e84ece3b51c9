"""manifest.json: what a built library is, in figures: keys, sha256 of every artifact, identities, flags, resources."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernels.base.files import write_atomically
from kernels.build.plan import Plan
from kernels.code import code_object as codeobject
from kernels.code import symbols
from kernels.errors import CodeObjectError
from kernels.families.table import FAMILIES
from matrix.base.errors import NameSyntaxError
from matrix.dialects import dialect
from matrix.families import Family
from matrix.keys import Key
from matrix.names import make_key, parse


def write_manifest(plan_file: Path) -> Path:
    """Read the plan and the objects it built and write manifest.json beside it; the manifest's path.

    Raises:
        CodeObjectError: an object holds other kernels than planned.
        DiskFullError.
    """
    plan = Plan.read(plan_file)
    folder = plan_file.parent
    work = folder
    for _ in Path(plan.folder).parts:
        work = work.parent
    facts = plan.facts
    kernels: dict[str, Any] = {}
    artifacts: dict[str, str] = {}
    for step in plan.steps:
        if step.kind == "manifest":
            continue
        for source in step.sources if step.kind in ("unit", "host") else ():
            artifacts[_relative(source, plan)] = _sha256(work / source)
        artifacts[_relative(step.target, plan)] = _sha256(work / step.target)
        if step.kind == "unit":
            family = dialect(facts["dialect"]).family(family_of(step.kernels[0]))
            kernels |= _unit_resources(work / step.target, step.kernels, family, facts["mask_impl"], facts["archs"])
    manifest = {
        **plan.facts,
        "kernel_count": len(kernels),
        "kernels": kernels,
        "artifacts": dict(sorted(artifacts.items())),
    }
    target = folder / "manifest.json"
    write_atomically(target, (json.dumps(manifest, indent=1) + "\n").encode())
    return target


def keys_of(facts: Mapping[str, Any], names: Sequence[str], families: Sequence[str]) -> tuple[Key, ...]:
    """Keys of the kernels of a library of ``families``, in the order of ``names``; ``facts`` are its manifest's.

    Raises NameSyntaxError: a name is none of the dialect's.
    """
    known = dialect(facts["dialect"])
    keys = []
    for name in names:
        own = next((one for one in families if name.startswith(f"fmha_{one}_d")), families[0])
        family = known.family(own)
        keys.append(make_key(family, parse(family, name, facts["mask_impl"]), name))
    return tuple(keys)


def family_of(name: str) -> str:
    """The family whose kernels' names begin as ``name`` does: those of fwd with ``fmha_fwd_d``, a head dim after it.

    Raises NameSyntaxError: no family that there is C++ for names kernels so.
    """
    for family in FAMILIES:
        if name.startswith(f"fmha_{family}_d"):
            return family
    raise NameSyntaxError(f"{name}: no family that can be built names kernels so.")


def _unit_resources(
    unit: Path, names: tuple[str, ...], family: Family, mask_impl: str, archs: list[str]
) -> dict[str, Any]:
    """Resources of a unit's kernels by name, then arch. A kernel has no code on archs that its guard leaves out.

    Of a split-KV key, which is compiled to several kernels, the one with most registers is recorded.
    """
    found: dict[str, Any] = {name: {"unit": unit.stem, "archs": {}} for name in names}
    bundles = codeobject.bundles(unit)
    if missing := set(archs) - set(bundles):
        raise CodeObjectError(f"{unit}: no code object for {', '.join(sorted(missing))}.")
    for arch, images in bundles.items():
        parsed = {name: parse(family, name, mask_impl) for name in names}
        compiled = FAMILIES[family.name].compiled_for
        planned = {name: values for name, values in parsed.items() if compiled(values, arch, family.archs)}
        resources = {kernel.symbol: kernel for image in images for kernel in codeobject.kernels(image)}
        for name, found_symbols in symbols.match(planned, list(resources), f"{unit} ({arch})", family.name).items():
            variants = [resources[symbol] for symbol in found_symbols]
            figures = dataclasses.asdict(max(variants, key=lambda kernel: (kernel.vgpr, kernel.lds_bytes)))
            figures.pop("arch")
            found[name]["archs"][arch] = figures
    return found


def _relative(path: str, plan: Plan) -> str:
    return path.removeprefix(f"{plan.folder}/")


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()

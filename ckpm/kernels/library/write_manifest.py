"""``python -m ckpm.kernels.library.write_manifest PLAN``: write the manifest of a built plan; a build's last step."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ckpm.base.entry import exit_code
from ckpm.base.errors import CodeObjectError, UsageError
from ckpm.base.files import sha256_of
from ckpm.base.records import Source, Value
from ckpm.kernels.code import code_object as codeobject
from ckpm.kernels.code.bf16 import bf16_conversion
from ckpm.kernels.code.code_object import KernelResources
from ckpm.kernels.families.table import FAMILIES
from ckpm.kernels.library.manifest import MANIFEST, BuiltKernel, Manifest, family_of
from ckpm.kernels.library.plan import BuildPlan
from ckpm.matrix.dialects import compute_units, dialect
from ckpm.matrix.families import Family
from ckpm.matrix.names import make_key, parse
from ckpm.matrix.problems.serving import serves_every_batch

_CKPM = Path(__file__).parents[2]
_MAKERS = ("kernels/code/*.py", "kernels/families/*.py", "kernels/library/*manifest.py", "matrix/problems/serving.py")


def makers(archs: Sequence[str]) -> tuple[str, ...]:
    """The parts of this program on which a manifest of the same objects depends: texts of modules, rows of archs."""
    files = sorted(file for pattern in _MAKERS for file in _CKPM.glob(pattern))
    return (*map(sha256_of, (*files, codeobject.READER)), *(repr(compute_units()[arch]) for arch in archs))


def write_manifest(plan_file: Path) -> Path:
    """Read the plan and its objects, write manifest.json beside it, return the manifest's path."""
    plan = BuildPlan.read(plan_file)
    folder = plan_file.parent
    work_folder = folder
    for _ in Path(plan.folder).parts:
        work_folder = work_folder.parent
    origin = Source(plan_file, "a plan of a build", "Build again.", UsageError)
    described = Manifest.of(Value({**plan.facts, "kernels": {}, "artifacts": {}}, origin, "facts"))
    kernels: dict[str, BuiltKernel] = {}
    artifacts: dict[str, str] = {}
    for step in plan.steps:
        if step.kind == "manifest":
            continue
        for source in step.sources if step.kind in ("unit", "host") else ():
            artifacts[_relative(source, plan)] = sha256_of(work_folder / source)
        artifacts[_relative(step.target, plan)] = sha256_of(work_folder / step.target)
        if step.kind == "unit" and step.kernels:
            family = family_of(dialect(described.dialect), step.kernels[0])
            kernels |= _unit_resources(
                work_folder / step.target, step.kernels, family, described.mask_impl, described.archs
            )
    target = folder / MANIFEST
    unit = next(step for step in plan.steps if step.kind == "unit")
    bf16 = bf16_conversion(unit.argv, plan.environment)
    replace(described, bf16=bf16, kernels=kernels, artifacts=dict(sorted(artifacts.items()))).write(target)
    return target


def _unit_resources(
    unit: Path, names: tuple[str, ...], family: Family, mask_impl: str, archs: tuple[str, ...]
) -> dict[str, BuiltKernel]:
    """Return resources of a unit's kernels by name, then arch. A kernel has no code on archs that its guard leaves out.

    A key may be compiled to several kernels: the one with the most registers comes first.
    """
    by_name: dict[str, dict[str, list[KernelResources]]] = {name: {} for name in names}
    bundles = codeobject.bundles(unit)
    if missing := set(archs) - set(bundles):
        raise CodeObjectError(f"{unit}: no code object for {', '.join(sorted(missing))}.")
    for arch, images in bundles.items():
        # a name without its arch trait is of the arch that is built
        trait = {} if "{arch_trait}" in family.grammar else {"arch_trait": family.archs.get(arch, ("",))[0]}
        parsed = {name: {**parse(family, name, mask_impl), **trait} for name in names}
        compiled = FAMILIES[family.name].compiled_for
        planned = {name: values for name, values in parsed.items() if compiled(values, arch, family.archs)}
        resources = {kernel.symbol: kernel for image in images for kernel in codeobject.kernels(image)}
        matched = match_symbols(planned, list(resources), unit, arch, family.name)
        for name, its_symbols in matched.items():
            variants = [resources[symbol] for symbol in sorted(its_symbols)]
            by_name[name][arch] = sorted(variants, key=lambda kernel: (-kernel.vgpr, -kernel.lds_bytes))
    return {
        name: BuiltKernel(
            unit=unit.stem,
            batch_invariant=serves_every_batch(make_key(family, parse(family, name, mask_impl), name)),
            archs={arch: first for arch, (first, *_) in its_archs.items()},
            others={arch: tuple(others) for arch, (_, *others) in its_archs.items() if others},
        )
        for name, its_archs in by_name.items()
    }


def match_symbols(
    keys: Mapping[str, Mapping[str, Any]], symbols: Sequence[str], unit: Path, arch: str, family: str
) -> dict[str, list[str]]:
    """Return kernel name -> symbols of its variants, for kernels of one unit (one family and dtype) on an arch."""
    by_name: dict[str, list[str]] = {}
    own = FAMILIES[family]
    for name, values in keys.items():
        wanted, count = own.symbol(values), own.variants(values, arch)
        by_name[name] = [symbol for symbol in symbols if wanted.search(symbol)]
        if len(by_name[name]) != count:
            raise CodeObjectError(
                f"{unit} ({arch}): {len(by_name[name])} of {len(symbols)} kernel symbols are {name}; "
                f"{'one was' if count == 1 else f'{count} were'} planned. "
                "Remove the object and build again; if it persists, the compiled code is not what was rendered."
            )
    if left := set(symbols) - {symbol for group in by_name.values() for symbol in group}:
        raise CodeObjectError(f"{unit} ({arch}): {len(left)} kernels that were not planned, e.g. {min(left)}.")
    return by_name


def _relative(path: str, plan: BuildPlan) -> str:
    return path.removeprefix(f"{plan.folder}/")


def main(plan: str) -> int:
    """Write the manifest of a plan's file and return the exit code."""

    def command() -> int:
        write_manifest(Path(plan))
        return 0

    return exit_code(command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

"""From keys to C++ text: units of instances, the dispatch and the harness, written only where they changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kernels.base.files import make_folder, write_if_changed, writing
from kernels.families import cpp, fwd_render, fwd_v3_render
from kernels.families.fwd_v3_render import FWD_V3
from kernels.families.renderable import PREFILL, library_of_keys
from kernels.families.spellings import spellings
from kernels.families.template_engine import environment, pattern
from kernels.families.units import Unit
from matrix.keys import Key


def instance_text(key: Key, features: cpp.Features, space: str = "ckpm::k0") -> str:
    """One kernel's specialisation."""
    if key.family == FWD_V3:
        return fwd_v3_render.instance_text(key, space)
    if key.family != PREFILL:
        return fwd_render.instance_text(key, space)
    words = cpp.instance(key, features, space)
    return pattern("instance.hip.j2", d=features, guarded=words["guard"] != "") % words


def unit_text(unit: Unit, features: cpp.Features) -> str:
    """One translation unit; instances are numbered apart by their namespace."""
    texts = [instance_text(key, features, f"ckpm::k{index}") for index, key in enumerate(unit.keys)]
    template = {PREFILL: "unit.hip.j2", FWD_V3: "fwd_v3_unit.hip.j2"}.get(unit.keys[0].family, "fwd_unit.hip.j2")
    return environment().get_template(template).render(instances=texts)


def dispatch_text(keys: Sequence[Key], features: cpp.Features) -> str:
    """The host dispatch over ``keys``, which must be in upstream's order of emission; of batch prefill if none."""
    if keys and keys[0].family == FWD_V3:
        return fwd_v3_render.dispatch_text(keys)
    if keys and keys[0].family != PREFILL:
        return fwd_render.dispatch_text(keys)
    arms: list[tuple[str, str, str, str]] = []
    tree: dict[str, dict[int, list[tuple[str, str, str, str]]]] = {}
    hdim_v: dict[tuple[str, int], int] = {}
    for index, key in enumerate(keys):
        conditions = " && ".join(cpp.conditions(key, features))
        arm = (f"T{index}", key.name, cpp.dispatch_trait(key, features), conditions)
        arms.append(arm)
        tree.setdefault(key.dtype, {}).setdefault(key.hdim_q, []).append(arm)
        hdim_v[key.dtype, key.hdim_q] = key.hdim_v
    words = spellings()["dtype"]
    dtypes = [
        (dtype, words[dtype]["bytes"], [(hdim, hdim_v[dtype, hdim], group) for hdim, group in hdims.items()])
        for dtype, hdims in tree.items()
    ]
    return environment().get_template("dispatch.hip.j2").render(dtypes=dtypes, arms=arms, d=features)


def harness_text(dialect: str, features: cpp.Features) -> str:
    """The C ABI of kernels/include/ckpm.h for one dialect's argument structures."""
    return environment().get_template("harness.hip.j2").render(dialect=dialect, d=features, cpp=spellings())


def render(
    keys: Sequence[Key], units: Sequence[Unit], dialect: str, features: cpp.Features, folder: Path
) -> Mapping[str, list[Path]]:
    """Write all sources of a library below ``folder`` and remove sources of kernels that are no longer selected.

    Returns:
        the paths by kind: ``units``, ``dispatch``, ``harness``.

    Raises:
        UsageError: the kernels' families don't make a library. TableError: a value has no C++ word.
        DiskFullError, OutputError: ``folder`` can't be written.
    """
    library = library_of_keys(keys, dialect)
    make_folder(folder)
    files = {
        "units": [folder / f"{unit.name}.hip" for unit in units],
        "dispatch": [folder / "dispatch.hip"],
        "harness": [folder / "harness.hip"],
    }
    for unit, file in zip(units, files["units"], strict=True):
        write_if_changed(file, unit_text(unit, features))
    write_if_changed(files["dispatch"][0], dispatch_text(keys, features))
    if library == PREFILL:
        harness = harness_text(dialect, features)
    elif library == FWD_V3:
        harness = fwd_v3_render.harness_text(dialect)
    else:
        harness = fwd_render.harness_text(dialect, library)
    write_if_changed(files["harness"][0], harness)
    wanted = {file for group in files.values() for file in group}
    for stale in set(folder.glob("*.hip")) - wanted:
        with writing(stale):
            stale.unlink(missing_ok=True)
    return files

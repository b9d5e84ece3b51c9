"""C++ text of keys: units of instances, the dispatch and the harness, written only where they changed.

Families (kernels/families/table.py) have the templates of their kernels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from ckpm.base.files import make_folder, write_if_changed
from ckpm.base.outputs import forget_output, record, recorded_digests
from ckpm.kernels.families.libraries import host, library_of_keys, library_with
from ckpm.kernels.families.table import FAMILIES
from ckpm.kernels.families.template_engine import environment, pattern
from ckpm.kernels.families.units import Unit
from ckpm.kernels.families.words import Features
from ckpm.matrix.keys import Key


def instance_text(key: Key, features: Features, space: str = "ckpm::k0") -> str:
    """The text of one kernel's specialisation."""
    family = FAMILIES[key.family]
    return pattern(family.instance, **family.choices(key, features)) % family.substitutions(key, features, space)


def unit_text(unit: Unit, features: Features) -> str:
    """The text of one translation unit, with a numbered namespace for each instance."""
    texts = [instance_text(key, features, f"ckpm::k{index}") for index, key in enumerate(unit.keys)]
    return environment().get_template(FAMILIES[unit.keys[0].family].unit).render(instances=texts)


def dispatch_text(keys: Sequence[Key], features: Features) -> str:
    """The host dispatch over ``keys`` (at least one) of one library, which must be in upstream's order of emission."""
    return host(library_with(keys[0].family)).dispatch(keys, features)


def render(
    keys: Sequence[Key], units: Sequence[Unit], dialect: str, features: Features, folder: Path
) -> Mapping[str, list[Path]]:
    """Write all sources of a library below ``folder`` and remove sources that we wrote there for another selection.

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
    write_if_changed(files["harness"][0], host(library).harness(dialect, features))
    wanted = {file for group in files.values() for file in group}
    for stale in {folder / name for name in recorded_digests(folder)} - wanted:
        forget_output(stale)
    record(folder, {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in wanted})
    return files

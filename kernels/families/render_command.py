"""``ckpm build --render``: the sources of a library as text, for any dialect, without a CK tree or a compiler."""

from __future__ import annotations

import argparse
from dataclasses import replace

from ckpm.base.display import show
from ckpm.base.errors import UsageError
from ckpm.base.outputs import demand_ours
from ckpm.kernels.families.libraries import whole
from ckpm.kernels.families.render import render
from ckpm.kernels.families.units import plan as plan_units
from ckpm.kernels.families.words import features
from ckpm.matrix.options import selection_from
from ckpm.matrix.selection import select_some


def run(args: argparse.Namespace) -> int:
    """Run the command. Sources of an earlier run that the selection lacks are removed, nothing else.

    Raises UsageError: a source would replace a file that is not ours, and what the calls raise.
    """
    if args.unit_size < 1:
        raise UsageError("--unit-size must be at least 1")
    dialect, selection = selection_from(args)
    keys = select_some(dialect, replace(selection, families=whole(selection.families)))
    units = plan_units(keys, args.unit_size)
    demand_ours(args.render / f"{name}.hip" for name in (*(unit.name for unit in units), "dispatch", "harness"))
    render(keys, units, dialect.name, features(dialect.name), args.render)
    show(f"{args.render}: {len(keys)} kernels in {len(units)} units, dispatch.hip, harness.hip ({dialect.name})")
    return 0

"""``verify-bundle --rebuild``: build the libraries again from the same commit, and compare every byte."""

from __future__ import annotations

import dataclasses
import logging
import tempfile
from pathlib import Path

from ckpm.base.errors import CheckFailedError, SetupError
from ckpm.reports.release.bundle import contents
from ckpm.reports.release.bundle.verify import Verified
from ckpm.reports.release.qualification.run import Execute, execute
from ckpm.reports.release.qualification.state import Checkout

log = logging.getLogger(__name__)


def rebuild(bundle: Verified, checkout: Checkout, execute: Execute = execute) -> int:
    """Build every library of a bundle without any cache. Return the number of equal files.

    Raises:
        SetupError: the checkout is not at the bundle's commit.
        CheckFailedError: a build failed.
        CheckFailedError: a library or manifest differs; the message lists them.
    """
    facts = bundle.verdict.facts
    if checkout.commit != facts.commit:
        raise SetupError(
            f"{checkout.root} is at {checkout.commit}, the bundle was made of {facts.commit}. Check that out first.",
            kind="dirty",
        )
    equal, lines = 0, []
    with tempfile.TemporaryDirectory(prefix="ckpm-") as temporary:
        work = Path(temporary)
        for step in bundle.steps:
            if "library" not in step.outputs:
                continue
            again = dataclasses.replace(step, command=(*step.command, "--no-cache"))
            log.info(f"{again.name}: {again.shown}")
            if code := execute(again, work, checkout.epoch):
                raise CheckFailedError(f"{again.name}: exit code {code}: {again.shown}", kind="stage")
            built = {
                contents.place_of(step, role, facts.upstream): (work / file).read_bytes()
                for role, file in step.outputs.items()
            }
            different = [name for name, data in built.items() if (bundle.folder / name).read_bytes() != data]
            lines += [f"{name}: differs from what was built again" for name in different]
            equal += len(built) - len(different)
    if lines:
        raise CheckFailedError(f"{bundle.folder}:\n  " + "\n  ".join(lines), kind="not-reproducible")
    return equal

"""JSON Schemas of the YAML tables, for editors: ``python -m tests.unit.schemas FOLDER`` writes them.

A schema is made from the record that the table is decoded to. Checks that need more than one field are not in it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ckpm.base.files import write_atomically
from ckpm.base.tablefile import Record
from ckpm.cluster.site import Site
from ckpm.decode.guard.table import GuardTable
from ckpm.docker.images import ImageTable
from ckpm.kernels.changes.rules import ChangeTable
from ckpm.kernels.families.spellings import SpellingTable
from ckpm.matrix.configurations.limits import LimitTable
from ckpm.matrix.configurations.sweeps import SweepTable
from ckpm.matrix.defects import DefectTable
from ckpm.matrix.dialects import ArchTable, DialectHead, FeatureTable, SelectionTable, UpstreamTable
from ckpm.matrix.problems.ledger import LedgerTable
from ckpm.matrix.problems.tables import ProblemTable, WordTable
from ckpm.matrix.problems.testing import TestingTable
from ckpm.matrix.published import GoldenManifest
from ckpm.matrix.sessions import SessionTable
from ckpm.reports.gates.budgets import BudgetTable
from ckpm.reports.gates.comparing import ThresholdTable
from ckpm.reports.gates.references import ReferenceTable
from ckpm.reports.gates.statistics import Settings
from ckpm.reports.release.stages import StageTable
from ckpm.reports.release.verdict import WaiverTable
from ckpm.suites.coverage import UnexecutedTable
from ckpm.suites.rounding import RoundingTable
from ckpm.timing.machine import TimingMachine
from ckpm.timing.model import MachineTable
from ckpm.timing.published import PublishedTable
from ckpm.timing.score import AcceptedTable
from ckpm.workflows.render import WorkflowTable

ROOT = Path(__file__).parents[2]
SCHEMAS: Mapping[str, tuple[type[Record], str]] = {  # the record, globs of its tables
    "accepted": (AcceptedTable, "reports/timing/accepted.yaml"),
    "archs": (ArchTable, "matrix/archs.yaml"),
    "budgets": (BudgetTable, "reports/gates/budgets.yaml"),
    "changes": (ChangeTable, "matrix/changes.yaml"),
    "defects": (DefectTable, "matrix/defects.yaml"),
    "dialect": (DialectHead, "matrix/dialects/*/dialect.yaml"),
    "features": (FeatureTable, "matrix/dialects/features.yaml"),
    "golden": (GoldenManifest, "matrix/golden/manifest.json matrix/golden/own/manifest.json"),
    "gpu_gate": (Settings, "reports/gates/gpu_gate.yaml"),
    "guard": (GuardTable, "reports/guard.yaml"),
    "images": (ImageTable, "docker/images.yaml"),
    "ledger": (LedgerTable, "matrix/ledger.yaml"),
    "machine": (TimingMachine, "reports/timing/machine.yaml"),
    "model": (MachineTable, "reports/gates/model.yaml"),
    "problems": (ProblemTable, "matrix/performance.yaml matrix/problems/*.yaml"),
    "published": (PublishedTable, "reports/timing/published.yaml"),
    "selections": (SelectionTable, "matrix/selections.yaml"),
    "spellings": (SpellingTable, "kernels/spellings.yaml"),
    "references": (ReferenceTable, "reports/gates/references.yaml"),
    "sessions": (SessionTable, "matrix/sessions.json"),
    "slurm": (Site, "docker/slurm.yaml"),
    "stages": (StageTable, "reports/release/stages.yaml"),
    "sweeps": (SweepTable, "matrix/sweeps.yaml"),
    "testing": (TestingTable, "matrix/testing.yaml"),
    "thresholds": (ThresholdTable, "reports/gates/*thresholds.yaml"),
    "rounding": (RoundingTable, "matrix/rounding.yaml"),
    "unexecuted": (UnexecutedTable, "matrix/unexecuted.yaml"),
    "upstreams": (UpstreamTable, "matrix/upstreams.yaml"),
    "validation": (LimitTable, "matrix/validation.yaml"),
    "waivers": (WaiverTable, "waivers.yaml"),
    "axis_words": (WordTable, "matrix/axis_words.yaml"),
    "workflows": (WorkflowTable, ".github/template_values.yaml"),
}


def schema(kind: type[Record]) -> Mapping[str, object]:
    """Return the JSON Schema of a record."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(kind)}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (kind, _) in SCHEMAS.items():
        write_atomically(folder / f"{name}.json", (json.dumps(schema(kind), indent=1) + "\n").encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]))

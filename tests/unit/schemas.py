"""JSON Schemas of the YAML tables, for editors and check-jsonschema: ``python -m tests.unit.schemas`` writes them.

A schema is made from the record that the table is decoded to. Checks that need more than one field are not in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ckpm.attention.timing.checks import PublishedTable
from ckpm.attention.timing.machine import MachineTable
from ckpm.base.files import write_atomically
from ckpm.base.tablefile import Record
from ckpm.kernels.changes.rules import ChangeTable
from ckpm.matrix.configurations.limits import LimitTable
from ckpm.matrix.configurations.sweeps import SweepTable
from ckpm.matrix.defects import DefectTable
from ckpm.matrix.dialects import ArchTable, DialectHead, ReceiptTable, UpstreamTable
from ckpm.matrix.problems.ledger import LedgerTable
from ckpm.matrix.problems.tables import ProblemTable
from ckpm.matrix.problems.testing import TestingTable
from ckpm.matrix.published import GoldenManifest
from ckpm.matrix.selection import ProfileTable, TierTable

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "matrix" / "schemas"
SCHEMAS: Mapping[str, tuple[type[Record], str]] = {
    "archs": (ArchTable, "matrix/tables/archs.yaml"),
    "changes": (ChangeTable, "kernels/changes/changes.yaml"),
    "defects": (DefectTable, "matrix/tables/defects.yaml"),
    "dialect": (DialectHead, "matrix/tables/dialects/*/dialect.yaml"),
    "golden": (GoldenManifest, "matrix/golden/manifest.json"),
    "ledger": (LedgerTable, "matrix/ledger.yaml"),
    "machine": (MachineTable, "attention/timing/machine.yaml"),
    "performance": (ProblemTable, "matrix/tables/performance.yaml"),
    "problems": (ProblemTable, "matrix/tables/problems/*.yaml"),
    "profiles": (ProfileTable, "matrix/tables/profiles.yaml"),
    "published": (PublishedTable, "attention/timing/published.yaml"),
    "receipts": (ReceiptTable, "matrix/tables/receipts.yaml"),
    "sweeps": (SweepTable, "matrix/tables/sweeps.yaml"),
    "testing": (TestingTable, "matrix/tables/testing.yaml"),
    "tiers": (TierTable, "matrix/tables/tiers.yaml"),
    "upstreams": (UpstreamTable, "matrix/tables/upstreams.yaml"),
    "validation": (LimitTable, "matrix/tables/validation.yaml"),
}


def schema_text(kind: type[Record]) -> str:
    """The JSON Schema of a record, as a file has it."""
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(kind)}
    return json.dumps(document, indent=1) + "\n"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, (kind, _) in SCHEMAS.items():
        write_atomically(FOLDER / f"{name}.json", schema_text(kind).encode())


if __name__ == "__main__":
    main()

"""Each table is valid by the JSON Schema of its record, and the schemas can be written."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest

from ckpm.base.tablefile import load, plain
from tests.unit.schemas import ROOT, SCHEMAS, main, schema

TABLES = [
    (name, file) for name, (_, globs) in SCHEMAS.items() for pattern in globs.split() for file in ROOT.glob(pattern)
]


@pytest.mark.parametrize(("name", "file"), sorted(TABLES), ids=str)
def test_tables_are_valid_by_their_schema(name: str, file: Path) -> None:
    document = json.loads(json.dumps(plain(load(file)), default=str))
    jsonschema.validate(document, schema(SCHEMAS[name][0]))


def test_written_schema_refuses_unknown_field(tmp_path: Path) -> None:
    main(tmp_path)
    assert sorted(file.stem for file in tmp_path.iterdir()) == sorted(SCHEMAS)
    written = json.loads((tmp_path / "selections.json").read_text())
    with pytest.raises(jsonschema.ValidationError, match="Additional properties"):
        jsonschema.validate({"receipts": {}, "profiles": {}, "tiers": {}, "profile": {}}, written)

"""The JSON Schemas are those of the records that tables are decoded to, and every table is valid by its schema."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest

from ckpm.base.tablefile import load, plain
from tests.unit.schemas import FOLDER, ROOT, SCHEMAS, schema_text


def test_schemas_folder_has_one_file_for_each_record() -> None:
    assert sorted(file.stem for file in FOLDER.iterdir()) == sorted(SCHEMAS)


@pytest.mark.parametrize("name", SCHEMAS)
def test_schema_is_current(name: str) -> None:
    """Run ``python -m tests.unit.schemas`` where this fails."""
    assert (FOLDER / f"{name}.json").read_text() == schema_text(SCHEMAS[name][0])


TABLES = [(name, file) for name, (_, globs) in SCHEMAS.items() for one in globs.split() for file in ROOT.glob(one)]


@pytest.mark.parametrize(("name", "file"), sorted(TABLES), ids=str)
def test_tables_are_valid_by_their_schema(name: str, file: Path) -> None:
    document = json.loads(json.dumps(plain(load(file)), default=str))
    jsonschema.validate(document, json.loads((FOLDER / f"{name}.json").read_text()))


def test_schema_refuses_unknown_field() -> None:
    schema = json.loads((FOLDER / "selections.json").read_text())
    with pytest.raises(jsonschema.ValidationError, match="Additional properties"):
        jsonschema.validate({"receipts": {}, "profiles": {}, "tiers": {}, "profile": {}}, schema)

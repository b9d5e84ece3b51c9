"""Stored lists of the names of our own dialects (matrix/golden/README.md).

`python -m tests.unit.matrix.own_lists DIALECT REASON` prints what changed in a dialect's lists and stores them anew.
"""

from __future__ import annotations

import json
import sys
import zipfile

from ckpm.base.files import write_atomically
from ckpm.matrix.published import GOLDEN, compare_names, emission_sha256, stored_lists
from tests.unit.enumerated import names_of

OWN = GOLDEN / "own"


def store(dialect: str, reason: str) -> None:
    """Store the names that a dialect has now, and add the reason to the manifest."""
    manifest = json.loads((OWN / "manifest.json").read_text())
    texts = {stored.member: stored.names() for stored in stored_lists(OWN)}
    for entry in (entry for entry in manifest["entries"] if entry["version"] == dialect):
        names = names_of(dialect, entry["api"], entry["arch"], entry["receipts"][0], entry["mask"])
        print(entry["file"], *compare_names(sorted(names), texts[entry["file"]]).lines(), sep="\n")
        texts[entry["file"]] = tuple(sorted(names))
        entry |= {"count": len(names), "sha256": emission_sha256(sorted(names))}
        entry["sha256_emission_order"] = emission_sha256(names)
    manifest["provenance"][dialect].append(reason)
    with zipfile.ZipFile(OWN / "lists.zip", "w", zipfile.ZIP_BZIP2) as archive:
        for member in sorted(texts):
            archive.writestr(zipfile.ZipInfo(member), "".join(f"{name}\n" for name in texts[member]), zipfile.ZIP_BZIP2)
    entries = ",\n".join(f"  {json.dumps(entry)}" for entry in manifest.pop("entries"))
    head = json.dumps(manifest, indent=1).removesuffix("\n}")
    write_atomically(OWN / "manifest.json", f'{head},\n "entries": [\n{entries}\n ]\n}}\n'.encode())


if __name__ == "__main__":
    store(*sys.argv[1:])

"""SCons's signature file, signed so that only our own is read. Its entries are pickles, and a foreign pickle (in a
restored ``build/``, for example) can run any code when it is loaded.

Its first line is an HMAC of the rest, made with a key that this user alone can read.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path

from ckpm.base.files import name_write_errors, write_atomically

NAME = ".sconsign.signed"


class Signatures:
    """A dbm module and its database for ``SConsignFile(name, Signatures(key))``."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._file = Path()
        self._entries: dict[str, bytes] = {}

    def open(self, name: str, mode: str) -> Signatures:
        """Read the file if it is ours, else start empty."""
        self._file = Path(name)
        self._entries = _entries(self._file, self._key) or {}
        return self

    def __getitem__(self, name: str) -> bytes:
        return self._entries[name]

    def __setitem__(self, name: str, pickled: bytes) -> None:
        self._entries[name] = pickled

    def sync(self) -> None:
        """Write the file."""
        text = {name: base64.b64encode(pickled).decode() for name, pickled in sorted(self._entries.items())}
        body = json.dumps(text, indent=0).encode()
        write_atomically(self._file, _seal(body, self._key) + b"\n" + body)


def discard_foreign(folder: Path, key: bytes) -> bool:
    """Delete a signature file of an output folder that is not ours, or is damaged; True if there was one."""
    file = folder / NAME
    with name_write_errors(file):
        if not file.exists() or _entries(file, key) is not None:
            return False
        file.unlink()
    return True


def _entries(file: Path, key: bytes) -> dict[str, bytes] | None:
    """Return the pickles by folder; None unless :meth:`Signatures.sync` wrote the file with this key."""
    try:
        seal, _, body = file.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    if not hmac.compare_digest(seal, _seal(body, key)):
        return None
    return {name: base64.b64decode(text) for name, text in json.loads(body).items()}


def _seal(body: bytes, key: bytes) -> bytes:
    return hmac.new(key, body, hashlib.sha256).hexdigest().encode()

"""The libraries that were compiled on demand, in the user's cache folder: ``jit/entries/<content key>/``.

An entry has the files of a built library (``libckpm.so``, ``manifest.json``, ``src/``), the index of its kernels for
C++ programs, and ``entry.json``. Beside each file but the sources lies its sha256. An entry counts as absent if a file
was changed, or if it is of another version or content key.

The content key depends on everything that determines a library's bytes, and on no path. With less in the key, a library
that was made for something else could be taken. Upstream's own key is the kernel's name alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from ckpm.attention.cpp.index import INDEX
from ckpm.base.errors import RecordError
from ckpm.base.files import hold_lock, name_write_errors, write_atomically
from ckpm.base.records import Source, as_text
from ckpm.base.store import adopt, is_adopted
from ckpm.base.trust import demand_trusted
from ckpm.kernels.families.libraries import host
from ckpm.kernels.families.render import dispatch_text, plan_units, unit_text
from ckpm.kernels.families.spellings import features as features_of
from ckpm.kernels.library.manifest import MANIFEST
from ckpm.kernels.library.plan import signature
from ckpm.kernels.library.request import LIBRARY, VERSION_SCRIPT, BuildRequest, identity_of
from ckpm.matrix.keys import Key

VERSION = 2  # of an entry: its contents, and how they are made


def texts(request: BuildRequest, keys: Sequence[Key]) -> dict[str, str]:
    """The library's C++ by file: units, dispatch, harness."""
    tree = request.tree
    features = features_of(tree.dialect, selector_takes_base=tree.selector_takes_base)
    units = {f"{unit.name}.hip": unit_text(unit, features) for unit in plan_units(keys, request.unit_size)}
    return {
        **units,
        "dispatch.hip": dispatch_text(keys, features),
        "harness.hip": host(request.library).harness(tree.dialect, features),
    }


def content_key(request: BuildRequest, rendered: dict[str, str]) -> str:
    """The content key: 32 hex digits.

    They depend on the entry's version, arch, flags, linker's words, dialect and text. They depend also on the
    identities of the compiler, of the upstream with its headers, and of our own headers.
    """
    toolchain = request.toolchain
    return signature(
        f"jit {VERSION}",
        request.selection.archs,
        identity_of(request),
        toolchain.flags,
        (*toolchain.link_flags, VERSION_SCRIPT.read_text(encoding="utf-8")),
        (request.tree.name, request.tree.dialect, request.selection.mask_impl),
        [word for file in sorted(rendered) for word in (file, rendered[file])],
    )


RECORD = "entry.json"
_FILES = (LIBRARY, MANIFEST, INDEX, RECORD)
_OTHERWISE = "set CKPM_CACHE to another folder"


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRecord:
    """Facts of an entry, with its ``content`` key. It took ``seconds`` to compile, its compilers took ``compilers``."""

    version: int
    content: str
    kernel: str
    arch: str
    seconds: float
    compilers: float

    def write(self, file: Path) -> None:
        """Replace ``file`` in one step."""
        write_atomically(file, as_text(dataclasses.asdict(self)))

    @classmethod
    def read(cls, file: Path) -> EntryRecord:
        """Read a record of compiling. Raise RecordError if it is missing or damaged."""
        return Source(file, "a record of compiling", "Ask for the kernel again.", RecordError).read().record(cls)


class Entries:
    """The entries of one cache folder."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self.top = cache / "jit"

    def folder(self, content: str) -> Path:
        """The path of an entry's folder, which may not exist."""
        return self.top / "entries" / content

    def log(self, content: str) -> Path:
        """The path of the log of a failed compilation."""
        return self.top / "logs" / f"{content}.log"

    def get(self, content: str) -> Path | None:
        """The folder of a whole entry; None if there is none.

        Entries that other users could have written are refused.
        """
        folder = self.folder(content)
        with contextlib.suppress(OSError, RecordError):  # not there, or damaged in one way or another
            for name in _FILES:
                demand_trusted(folder / name, self._cache)
                if not is_adopted(folder / name):
                    return None
            record = EntryRecord.read(folder / RECORD)
            return folder if (record.version, record.content) == (VERSION, content) else None
        return None

    def put(self, content: str, built: Path, record: EntryRecord, drafts: Path) -> Path:
        """Move a finished library from the folder ``built`` into its entry, and return the entry's folder.

        An entry that is damaged or of another version is replaced. ``drafts`` is on the same file system. The caller
        holds the lock of the content key.
        """
        folder = self.folder(content)
        with name_write_errors(folder, _OTHERWISE):
            draft = Path(tempfile.mkdtemp(dir=drafts, prefix="entry."))
            record.write(built / RECORD)
            for name in _FILES:
                adopt(built / name, draft / name)
            (built / "src").rename(draft / "src")
            folder.parent.mkdir(parents=True, exist_ok=True)
            if folder.exists():
                folder.rename(draft.with_name("replaced"))
            draft.chmod(0o755)
            draft.rename(folder)
        return folder

    def lock(self, content: str, stopping: threading.Event) -> AbstractContextManager[None]:
        """Hold the lock of a content key; a process that is killed lets it go.

        Raises:
            StoppedError: ``stopping`` was set while another process held the lock.
        """
        return hold_lock(self.top / "locks" / f"{content}.lock", _OTHERWISE, stopping.is_set)

    def keep_log(self, content: str, text: str) -> Path:
        """Write the log of a failed compilation, and return its path."""
        file = self.log(content)
        write_atomically(file, text.encode(errors="replace"))
        return file

    def forget_log(self, content: str) -> None:
        with contextlib.suppress(OSError):
            self.log(content).unlink()

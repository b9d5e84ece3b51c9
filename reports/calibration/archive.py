"""One tar.gz of a run: results, logs, versions and tables. The same files make the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ckpm.base.errors import UsageError
from ckpm.reports.gates.model import TABLE
from ckpm.reports.gates.references import REFERENCES
from ckpm.reports.gates.statistics import SETTINGS
from ckpm.reports.page.inputs import files_of
from ckpm.reports.release.bundle.checksums import text_of
from ckpm.reports.release.bundle.names import CHECKSUMS

ENDING = ".tar.gz"
_BESIDE = ("*/*/*.xml", "report.html", "report.md", "*.log", "*/*/*.log")  # which reports don't read
_TABLES = (TABLE, REFERENCES, SETTINGS)


def gathered(folder: Path, logs: Sequence[Path]) -> dict[str, Path]:
    """Files by their name in the archive: ``results/`` as they lie in ``folder``, ``logs/`` and ``tables/``.

    Raises:
        UsageError: two logs have the same name, or one is no file.
    """
    listed = [*files_of(folder), *(file for pattern in _BESIDE for file in folder.glob(pattern))]
    named = {f"results/{file.relative_to(folder).as_posix()}": file for file in listed if file.is_file()}
    named |= {f"tables/{file.name}": file for file in _TABLES}
    for log in logs:
        name = f"logs/{log.name}"
        if not log.is_file():
            raise UsageError(f"--log {log}: there is no such file")
        if name in named:
            raise UsageError(f"--log {log}: another log has the name {log.name}: rename one of them")
        named[name] = log
    return named


def packed(root: str, files: Mapping[str, bytes]) -> bytes:
    """The archive of these files below one folder ``root``, with SHA256SUMS over all of them, as sha256sum reads it.

    Order, times, owners and modes are fixed.
    """
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    stream = io.BytesIO()
    with (
        gzip.GzipFile(filename="", fileobj=stream, mode="wb", mtime=0) as compressed,
        tarfile.TarFile(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, data in sorted({**files, CHECKSUMS: text_of(sums).encode()}.items()):
            entry = tarfile.TarInfo(f"{root}/{name}")
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
    return stream.getvalue()


def root_of(output: Path) -> str:
    """The folder in the archive, called like it. Raises UsageError: another ending."""
    if not output.name.endswith(ENDING) or output.name == ENDING:
        raise UsageError(f"--output {output}: a name that ends with {ENDING} is needed")
    return output.name.removesuffix(ENDING)

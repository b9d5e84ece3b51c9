"""Make a bundle: gather, describe and sign it in a temporary folder, then rename that."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.errors import OutputError
from ckpm.base.files import abandoned_drafts, make_folder, name_write_errors, sha256_of, write_atomically
from ckpm.base.junit import junit_text
from ckpm.base.results import Results
from ckpm.reports.junit import gate_results
from ckpm.reports.release import archive, contents, sbom, signature, statements
from ckpm.reports.release.record import StageRecord
from ckpm.reports.release.stages import StageStep
from ckpm.reports.release.statements import Origin
from ckpm.reports.release.verdict import ReleaseVerdict
from ckpm.reports.verdicts import Gate


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The inputs of a bundle. ``tables`` are texts by their names in it. ``key`` signs; None leaves it unsigned.

    ``direct`` are the packages that our distribution depends on.
    """

    steps: tuple[StageStep, ...]
    records: Mapping[str, StageRecord]
    verdict: ReleaseVerdict
    work: Path
    tables: Mapping[str, bytes]
    origin: Origin
    direct: Sequence[str]
    key: Path | None = None


def assemble(release: Release, output: Path) -> tuple[Path, Path]:
    """Make the bundle's folder and its tar below ``output``, and replace those of an earlier run."""
    name = contents.bundle_name(release.verdict.facts)
    target, beside = output / name, output / f".{name}.new" / name
    _demand_replaceable(target)
    with name_write_errors(output):
        shutil.rmtree(beside.parent, ignore_errors=True)
        for draft in abandoned_drafts(output):
            draft.unlink(missing_ok=True)
    try:
        _fill(release, beside)
        _describe(release, beside)
        with name_write_errors(target):
            if target.exists():  # only now, so that a failure above leaves the earlier bundle
                target.rename(beside.with_name("replaced"))  # half deleted in its place, it would not be a bundle
            beside.rename(target)
    finally:
        shutil.rmtree(beside.parent, ignore_errors=True)
    tar = output / f"{name}.tar"
    archive.write_tar(target, contents.files_of(target), release.verdict.epoch, tar)
    return target, tar


def _demand_replaceable(target: Path) -> None:
    if target.exists() and not (target / contents.CHECKSUMS).is_file():
        raise OutputError(f"{target}: in the way, and not a bundle. Move it, or name another --output.")


def _fill(release: Release, folder: Path) -> None:
    upstream = release.verdict.facts.upstream
    for step in release.steps:
        write_atomically(folder / contents.record_of(step), release.records[step.name].as_bytes())
        for role, source in step.outputs.items():
            file = release.work / source
            if path := contents.path_of(step, role, upstream):
                _copy(file, folder / path)
            if role == "results":
                write_atomically(folder / contents.junit_of(step, upstream), junit_text(Results.read(file)).encode())
            if role == "gate":
                gate = gate_results(Gate.read(file))
                write_atomically(folder / contents.junit_of(step, upstream), junit_text(gate).encode())
    for name, text in release.tables.items():
        write_atomically(folder / name, text)
    write_atomically(folder / contents.VERDICT, release.verdict.as_bytes(signed=release.key is not None))


def _describe(release: Release, folder: Path) -> None:
    requirements = (folder / contents.REQUIREMENTS).read_text(encoding="utf-8")
    sums = _sums(folder, contents.payload(contents.files_of(folder)))
    compiler = release.origin.compiler_sha256
    parts = sbom.sbom(folder.name, sums, release.verdict, requirements, direct=release.direct, compiler=compiler)
    write_atomically(folder / contents.SBOM, parts)
    sums = _sums(folder, contents.subjects(contents.files_of(folder)))
    provenance = statements.provenance(sums, release.verdict, release.steps, release.origin)
    write_atomically(folder / contents.PROVENANCE, provenance)
    signatures = signature.raw_signatures(statements.signed_text(provenance), release.key)
    write_atomically(folder / contents.ENVELOPE, statements.envelope(provenance, signatures))
    listed = _sums(folder, contents.files_of(folder))
    write_atomically(folder / contents.CHECKSUMS, contents.checksums_text(listed).encode())
    if release.key:
        signature.sign(folder, release.key)


def _sums(folder: Path, files: Sequence[str]) -> dict[str, str]:
    return {name: sha256_of(folder / name) for name in files}


def _copy(source: Path, target: Path) -> None:
    make_folder(target.parent)
    with name_write_errors(target):
        shutil.copyfile(source, target)
        target.chmod(0o644)

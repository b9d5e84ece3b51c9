"""``verify-bundle``: check offline that a bundle is the released one. Every doubt is an error."""

from __future__ import annotations

import dataclasses
import logging
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ckpm.base.errors import CheckFailedError, SetupError, TrustError
from ckpm.base.paths import PROJECT
from ckpm.base.processes import git
from ckpm.base.records import Source, Value
from ckpm.matrix.sessions import SESSIONS
from ckpm.reports.release import contents, sbom, signature, statements
from ckpm.reports.release.record import Facts, StageRecord
from ckpm.reports.release.run import Checkout, Execute, execute
from ckpm.reports.release.stages import STAGES, StageStep, StageTable, read_stages, steps
from ckpm.reports.release.verdict import Basis, ReleaseVerdict, examine, judge, read_waivers

_REMEDY = "Don't use it; take the bundle again from where it was published."
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
STAGES_PATH, SESSIONS_PATH = "reports/release/stages.yaml", "matrix/sessions.json"  # in a clone
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A bundle that is in order. ``signer`` is '' without --allowed-signers, None if the bundle is not signed.

    ``left_out`` are archs of the table of stages that the bundle has no library for.
    """

    folder: Path
    verdict: ReleaseVerdict
    steps: tuple[StageStep, ...]
    signer: str | None
    left_out: tuple[str, ...]


def verify(folder: Path, allowed: Path | None, clone: Path = PROJECT) -> Verified:
    """Compare all files of a bundle's folder with one another, and its signature with ``allowed`` signers.

    Its table of stages must be that of its commit in ``clone``, or this ckpm's if the clone lacks the commit.
    """
    files = contents.files_of(folder)
    signer: str | None = None
    if allowed:
        signer = signature.check_signer(folder, allowed)
    elif contents.SIGNATURE in files:
        signature.check_whole(folder)
        signer = ""
    sums = contents.demand_listed(folder, files)
    basis, signed = _basis(folder, sums)
    if signed and contents.SIGNATURE not in files:
        raise TrustError(
            f"{folder}/{contents.SIGNATURE}: missing: {contents.VERDICT} has it as signed.", kind="bundle-file"
        )
    table = _demand_committed(_require(folder, sums, contents.STAGES), basis.facts.commit, clone)
    planned = steps(table, basis.archs, upstream=basis.facts.upstream, tier=basis.facts.tier, toolchain=basis.toolchain)
    records = _records(folder, sums, planned, basis.facts)
    verdict = _verdict(folder, sums, planned, records, basis, signed=signed)
    _demand_expected(folder, sums, planned, basis.facts.upstream)
    listed = list(sums)
    sbom.demand_complete(folder / contents.SBOM, {name: sums[name] for name in contents.payload(listed)})
    subjects = {name: sums[name] for name in contents.subjects(listed)}
    provenance = _require(folder, sums, contents.PROVENANCE)
    statements.demand_true(provenance, subjects, verdict, planned)
    statements.demand_envelope(_require(folder, sums, contents.ENVELOPE), provenance.read_bytes())
    left_out = tuple(arch for arch in table.archs if arch not in basis.archs)
    return Verified(folder=folder, verdict=verdict, steps=planned, signer=signer, left_out=left_out)


def _demand_committed(file: Path, commit: str, clone: Path) -> StageTable:
    """Read the table of stages, and compare it with the commit's."""
    bundle_table = read_stages(file)
    with tempfile.TemporaryDirectory(prefix="ckpm-") as temporary:
        stages, sessions, whose = STAGES, SESSIONS, "this ckpm, because no clone with the commit is here"
        if data := git(clone, "cat-file", "blob", f"{commit}:{STAGES_PATH}"):
            stages, sessions = Path(temporary) / STAGES.name, Path(temporary) / SESSIONS.name
            whose = f"commit {commit}"
            stages.write_bytes(data)
            sessions.write_bytes(git(clone, "cat-file", "blob", f"{commit}:{SESSIONS_PATH}") or b"")
        table = read_stages(stages, sessions)
    if bundle_table == table:
        return bundle_table
    kinds = {
        "missing": table.stages.keys() - bundle_table.stages.keys(),
        "not in it": bundle_table.stages.keys() - table.stages.keys(),
        "other commands, needs or outputs": {
            name
            for name in table.stages.keys() & bundle_table.stages.keys()
            if table.stages[name] != bundle_table.stages[name]
        },
        "other": {name for name in ("archs", "upstream") if getattr(table, name) != getattr(bundle_table, name)},
    }
    lines = [f"{kind}: {', '.join(sorted(names))}" for kind, names in kinds.items() if names]
    raise TrustError(f"{file}: not the stages of {whose}:\n  " + "\n  ".join(lines), kind="stages")


def _require(folder: Path, sums: Mapping[str, str], name: str) -> Path:
    if name not in sums:
        raise TrustError(f"{folder}/{name}: missing. {_REMEDY}", kind="bundle-file")
    return folder / name


def _basis(folder: Path, sums: Mapping[str, str]) -> tuple[Basis, bool]:
    """The fields of verdict.json besides the verdict. The second value is True if the bundle was signed."""
    file = _require(folder, sums, contents.VERDICT)
    document = Source(location=file, what="a verdict", remedy=_REMEDY, error=TrustError).read()
    commit = document.get("commit")
    if not _COMMIT.fullmatch(commit.text()):
        raise commit.fail("is not the full name of a commit")
    names = {field.name: field.name for field in dataclasses.fields(Facts)} | {"toolchain": "toolchain_identity"}
    basis = Basis(
        facts=Facts(**{field: document.get(name).nonempty_text() for field, name in names.items()}),
        epoch=document.get("epoch").count(),
        archs=_read_texts(document.get("archs")),
        toolchain=document.get("toolchain").nonempty_text(),
        images=_read_texts(document.get("images")),
    )
    return basis, document.get("signed").truth()


def _read_texts(values: Value) -> tuple[str, ...]:
    return tuple(value.nonempty_text() for value in values.items())


def _records(
    folder: Path, sums: Mapping[str, str], planned: tuple[StageStep, ...], facts: Facts
) -> Mapping[str, StageRecord]:
    """Records of all steps. Their inputs and outputs must be the bundle's files."""
    records: dict[str, StageRecord] = {}
    for step in planned:
        record = StageRecord.read(_require(folder, sums, contents.record_of(step)))
        inputs = {file: digest for need in step.needs for file, digest in records[need].outputs.items()}
        if lines := record.differences(step, facts, inputs):
            raise TrustError(
                f"{folder}/{contents.record_of(step)}: of another release: {'; '.join(lines)}.", kind="statement"
            )
        for role, file in step.outputs.items():
            path = contents.path_of(step, role, facts.upstream)
            if path and sums.get(path) != record.outputs[file]:
                raise TrustError(f"{folder}/{path}: not the file that its record lists. {_REMEDY}", kind="statement")
        records[step.name] = record
    return records


def _verdict(
    folder: Path,
    sums: Mapping[str, str],
    planned: tuple[StageStep, ...],
    records: Mapping[str, StageRecord],
    basis: Basis,
    *,
    signed: bool,
) -> ReleaseVerdict:
    """Judge the files, and compare the verdict with the written one."""
    upstream = basis.facts.upstream
    findings = examine(planned, records, lambda step, role: folder / contents.path_of(step, role, upstream))
    waivers = read_waivers(folder / contents.WAIVERS) if contents.WAIVERS in sums else {}
    verdict = judge(basis, findings, waivers, today=None)
    if verdict.as_bytes(signed=signed) != (folder / contents.VERDICT).read_bytes():
        raise TrustError(
            f"{folder}/{contents.VERDICT}: contradicts the results and waivers beside it. {_REMEDY}", kind="statement"
        )
    return verdict


def _demand_expected(folder: Path, sums: Mapping[str, str], planned: tuple[StageStep, ...], upstream: str) -> None:
    """Check that every file is the output of a stage or one of our tables, and that none is missing."""
    tables = (contents.STAGES, contents.WAIVERS, contents.LEDGER, contents.REQUIREMENTS, contents.VERDICT)
    expected = {*tables, contents.SBOM, contents.PROVENANCE, contents.ENVELOPE}
    for step in planned:
        expected.add(contents.record_of(step))
        expected |= {contents.path_of(step, role, upstream) for role in step.outputs}
        if step.outputs.keys() & {"results", "gate"}:
            expected.add(contents.junit_of(step, upstream))
    if unknown := sorted(sums.keys() - expected):
        raise TrustError(f"{folder}: files that no stage made: {', '.join(unknown)}. {_REMEDY}", kind="bundle-file")
    missing = sorted(expected - sums.keys() - {"", contents.WAIVERS})
    if missing:
        raise TrustError(f"{folder}: missing: {', '.join(missing)}. {_REMEDY}", kind="bundle-file")


def describe(verified: Verified) -> list[str]:
    """Lines on a verified bundle, for people."""
    verdict, facts = verified.verdict, verified.verdict.facts
    signed = "not signed"
    if verified.signer is not None:
        signed = f"signed by {verified.signer}" if verified.signer else "signed; --allowed-signers FILE checks by whom"
    return [
        f"{verified.folder.name}: in order: {verdict.text}",
        f"commit {facts.commit}, {', '.join(verdict.archs)}, {facts.upstream}, tier {facts.tier}",
        *([f"without: {', '.join(verified.left_out)}, of the table of stages"] if verified.left_out else []),
        f"stages: {', '.join(dict.fromkeys(step.stage for step in verified.steps))}",
        signed,
        *(f"waived: {waiver.name}, by {waiver.accepted_by} until {waiver.until}" for waiver in verdict.waived),
    ]


def rebuild(bundle: Verified, checkout: Checkout, execute: Execute = execute) -> int:
    """Build every library of a bundle without any cache. Return the number of equal files."""
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
                contents.path_of(step, role, facts.upstream): (work / file).read_bytes()
                for role, file in step.outputs.items()
            }
            different = [name for name, data in built.items() if (bundle.folder / name).read_bytes() != data]
            lines += [f"{name}: differs from what was built again" for name in different]
            equal += len(built) - len(different)
    if lines:
        raise CheckFailedError(f"{bundle.folder}:\n  " + "\n  ".join(lines), kind="not-reproducible")
    return equal

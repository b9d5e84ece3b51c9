"""A release that costs nothing: the real table of stages, whose commands are played by :class:`Stages`."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from ckpm.base.files import sha256_of
from ckpm.base.results import FOREIGN_LIBRARY, LIBRARY_SHA256, CaseResult, LedgerUse, Results
from ckpm.reports.release.assemble import Release, assemble
from ckpm.reports.release.contents import CHECKSUMS, SIGNATURE
from ckpm.reports.release.record import Facts
from ckpm.reports.release.run import QualificationPlan, run
from ckpm.reports.release.stages import StageStep, read_stages, steps
from ckpm.reports.release.statements import LOCAL_BUILDER, Origin
from ckpm.reports.release.verdict import Basis, examine, judge, read_waivers
from ckpm.reports.verdicts import Gate, VerdictRow
from tests.unit.manifests import document

ROOT = Path(__file__).parents[4]
EPOCH = 1_700_000_000
CODE = (b"first code object" * 40, b"second code object" * 40)
DEFECT = "table-read-past-end"
FACTS = Facts(
    commit="a" * 40,
    tier="smoke",
    upstream="aiter",
    upstream_identity=f"amd-aiter 0.1.7 sha256:{'b' * 64}",
    toolchain="embedded clang 22",
)
BASIS = Basis(facts=FACTS, epoch=EPOCH, archs=("gfx950",), toolchain="embedded")
WAIVERS = f"""
waivers:
  {DEFECT}:
    accepted_by: A Person
    accepted_on: 2026-01-01
    until: 2099-12-31
    reason: tables are padded by everybody who calls this
"""
REQUIREMENTS = f"""ziglang==0.17.0 \\
    --hash=sha256:{"0" * 64} \\
    --hash=sha256:{"1" * 64}
    # via -r requirements.in
jinja2==3.1.6 \\
    --hash=sha256:{"2" * 64}
    # via -r requirements.in
markupsafe==3.0.3 \\
    --hash=sha256:{"3" * 64}
    # via jinja2
pytest==9.2.0 \\
    --hash=sha256:{"4" * 64}
    # via
    #   -r requirements.in
    #   pytest-xdist
"""
DIRECT = ("ziglang==0.17.0", "Jinja2>=3.1.6,<4")


@dataclass
class Stages:
    """Plays the commands. ``called`` are the steps run; ``fails`` are the names of those that end with an error."""

    called: list[str] = field(default_factory=list)
    fails: set[str] = field(default_factory=set)
    code: tuple[bytes, ...] = CODE
    outcomes: Mapping[str, str] = field(default_factory=dict)  # by step, of its one case
    facts: Mapping[str, str] = field(default_factory=dict)  # of the results of suites, instead of the true ones
    gate: str = "unchanged"
    left_out: Mapping[str, object] = field(default_factory=dict)

    def __call__(self, step: StageStep, work: Path, epoch: int) -> int:
        self.called.append(step.name)
        for role, name in step.outputs.items():
            file = work / name
            file.parent.mkdir(parents=True, exist_ok=True)
            self._write(step, role, file)
        return 21 if step.name in self.fails else 0

    def _write(self, step: StageStep, role: str, file: Path) -> None:
        match role:
            case "library":
                file.write_bytes(b"".join((step.arch.encode(), *self.code)))
            case "manifest":
                digest = sha256_of(file.with_name("libckpm.so"))
                text = document({}, archs=[step.arch], artifacts={"libckpm.so": digest}, left_out=self.left_out)
                file.write_text(json.dumps(text))
            case "results":
                library = file.with_name("libckpm.so")
                facts = {LIBRARY_SHA256: sha256_of(library)} if library.exists() else {}
                ledger_use = LedgerUse(name=DEFECT, location="ledger.yaml:37", reason="reads on")
                outcome = self.outcomes.get(step.name, "passed")
                first_case = CaseResult(suite=step.stage, classname=step.stage, name=f"{step.stage}/a", outcome=outcome)
                ledger = ledger_use if step.stage == "page-fault" else None
                other = outcome if outcome == "skipped" else "passed"
                second_case = replace(first_case, name=f"{step.stage}/b", outcome=other, ledger=ledger)
                Results((first_case, second_case), self.facts or facts).write(file)
            case "gate":
                row = VerdictRow(
                    gate="static", subject="k", metric="vgpr", unit="", baseline=1, candidate=1, threshold="",
                    verdict=self.gate,
                )  # fmt: skip
                Gate.of([row], {"arch": step.arch, "upstream": "aiter"}).write(file)
            case _:
                file.write_text(f"{role} of {step.name}\n")


FOREIGN = {FOREIGN_LIBRARY: "c" * 64, LIBRARY_SHA256: "d" * 64}


def planned_steps(archs: tuple[str, ...] = ("gfx950",)) -> tuple[StageStep, ...]:
    return steps(read_stages(), archs, upstream="aiter", tier="smoke", toolchain="embedded")


def plan(work: Path, facts: Facts = FACTS, **options: object) -> QualificationPlan:
    return QualificationPlan(steps=planned_steps(), facts=facts, work=work, epoch=EPOCH, **options)  # type: ignore[arg-type]


def make_bundle(folder: Path, *, key: Path | None = None) -> tuple[Path, Path]:
    """A bundle of one arch with one waived defect: its folder and its tar."""
    folder.mkdir(parents=True, exist_ok=True)
    work, waivers, requirements = folder / "work", folder / "waivers.yaml", folder / "requirements.txt"
    waivers.write_text(WAIVERS)
    requirements.write_text(REQUIREMENTS)
    records = run(plan(work), Stages())
    findings = examine(planned_steps(), records, lambda step, role: work / step.outputs[role])
    verdict = judge(BASIS, findings, read_waivers(waivers), today=None)
    tables = {
        "stages.yaml": msgspec.yaml.encode(read_stages()),
        "ledger.yaml": (ROOT / "matrix/ledger.yaml").read_bytes(),
        "requirements.txt": REQUIREMENTS.encode(),
        "waivers.yaml": WAIVERS.encode(),
    }
    release = Release(
        steps=planned_steps(),
        records=records,
        verdict=verdict,
        work=work,
        tables=tables,
        origin=Origin(builder=LOCAL_BUILDER, compiler_sha256="e" * 64, source="git+https://example.org/ckpm"),
        direct=DIRECT,
        key=key,
    )
    return assemble(release, folder / "release")


def make_key(folder: Path, name: str = "key", *options: str) -> Path:
    """A key without a passphrase (Ed25519 by default), and beside it the file of signers that allows it."""
    folder.mkdir(parents=True, exist_ok=True)
    key = folder / name
    subprocess.run(
        ["ssh-keygen", "-q", *(options or ("-t", "ed25519")), "-N", "", "-C", name, "-f", str(key)], check=True
    )
    public = key.with_suffix(".pub").read_text()
    key.with_suffix(".signers").write_text(f'{name}@example.org namespaces="ckpm-release" {public}')
    return key


def names_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def copy_of(folder: Path, target: Path) -> Path:
    return Path(shutil.copytree(folder, target / folder.name))


def update_sums(folder: Path) -> None:
    """Write checksums of the changed files, as to hide a change."""
    listed = [name for name in names_in(folder) if name not in (CHECKSUMS, SIGNATURE)]
    (folder / CHECKSUMS).write_text("".join(f"{sha256_of(folder / name)}  {name}\n" for name in listed))

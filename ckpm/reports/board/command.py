"""``ckpm first-gpu-run``: every step on this machine's GPU, and one file; ``ckpm gpu-results`` reads such files."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import hashlib
import logging
import os
import secrets
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ckpm.base import rocm_places
from ckpm.base.display import show
from ckpm.base.errors import DeviceError, DiskFullError, OutputError, UsageError
from ckpm.base.files import hold_lock, name_write_errors, write_atomically
from ckpm.base.paths import PROJECT, program_digest
from ckpm.base.processes import git
from ckpm.base.records import as_text
from ckpm.base.results import Results
from ckpm.base.rocm_choice import VARIABLE
from ckpm.kernels.code.toolchains import rocm
from ckpm.matrix.dialects import check_upstream
from ckpm.reports.board import page, parcel
from ckpm.reports.board.page import BoardFindings, BoardRun, BoardStep, read_findings
from ckpm.reports.board.published import with_board
from ckpm.reports.board.table import SMOKE, BoardTable, plan_steps, read_steps
from ckpm.reports.release.record import Facts, StageRecord, record_path
from ckpm.reports.release.run import OVERDUE, QualificationPlan, execute, run
from ckpm.reports.release.stages import StageStep
from ckpm.timing.score import OWN, Score

OUTPUT = Path("build/first-gpu-run")
PROBE, SENT = "board", ("results", "gate", "report", "manifest")  # the first step; roles of files in the parcel
FINISHED = (*page.JUDGED, OVERDUE)  # exit codes of steps that need not run again
_LOGS = Path("build/logs")
_BESIDE_MINUTES, _MOST_BESIDE = 10.0, 20
log = logging.getLogger(__name__)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arch", choices=read_steps().archs, help="default: that of this machine's GPU")
    parser.add_argument("--tier", choices=(SMOKE, "full"), default="full", help="smoke: a rehearsal of minutes")
    parser.add_argument("--patience", type=float, default=1.0, metavar="FACTOR", help="of the steps' time limits")
    parser.add_argument("--only", action="append", default=[], metavar="STEP", help="run these; finished ones stay")
    parser.add_argument("--again", action="append", default=[], metavar="STEP", help="run a finished step again")
    parser.add_argument("--work", type=Path, default=OUTPUT, metavar="DIR", help="(default: %(default)s)")
    parser.add_argument("--probe", type=Path, metavar="FILE", help="only try the GPU, and put its facts there")
    parser.set_defaults(run=run_board, log_to="stderr")


def add_results_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help=f"that first-gpu-run wrote, *{parcel.SUFFIX}")
    parser.add_argument("--against", type=Path, metavar="FILE", help="list the differences from another board")
    parser.add_argument("--score", type=Path, metavar="FILE", help="of ckpm timing score: add the board's times to it")
    parser.set_defaults(run=show_results)


@dataclass(kw_only=True)
class Runner:
    """Runs the steps of a table in ``work``. ``lost`` is True if the GPU did not answer after the last step."""

    table: BoardTable
    arch: str
    work: Path
    patience: float
    probe: StageStep
    lost: bool = False
    failed: dict[str, int] = dataclasses.field(default_factory=dict)  # exit codes of steps that did not finish

    def execute(self, step: StageStep, work: Path, epoch: int) -> int:
        """Run a step with its time limit, its output in its log. After a failure ask whether the GPU still answers."""
        stage = self.table.stages.get(step.stage)
        minutes = (stage.minutes if stage else _BESIDE_MINUTES) * self.patience
        log.info(f"  {stage.question if stage else 'the emulator, for comparison'} (at most {minutes:g} minutes)")
        code = execute(step, work, epoch, work / log_of(step), minutes * 60)
        self.lost = bool(code) and step.stage != PROBE and stage is not None and not self.answers(epoch)
        return DeviceError.exit_code if self.lost and code in page.JUDGED else code  # cases that no GPU answered

    def answers(self, epoch: int) -> bool:
        """True if the GPU takes a write in time."""
        seconds = self.table.stages[PROBE].minutes * self.patience * 60
        return execute(self.probe, self.work, epoch, self.work / _LOGS / "answers.txt", seconds) == 0

    def note(self, step: StageStep, code: int) -> None:
        """Report a failed step. Raises if the following steps can't do better."""
        self.failed[step.stage] = code
        last = (self.work / log_of(step)).read_text(errors="replace").strip().splitlines()[-3:]
        ending = BoardStep(name=step.stage, question="", command="", code=code).ending
        log.info(f"{step.name}: {ending}; its output is in {self.work / log_of(step)}:")
        for line in last:
            log.info(f"  {line}")
        if code == DiskFullError.exit_code:
            raise DiskFullError(f"{self.work}: {step.name} could not write. Free some space; {_GO_ON}")
        if step.stage == PROBE:
            raise DeviceError(f"no step was run: {' '.join(last[-1:]) or 'the GPU does not answer'}")
        if self.lost:
            bus = page.read_board(self.work / self.probe.outputs["report"]).get("bus")
            raise DeviceError(
                f"the GPU does not answer after {step.name}. Nothing was reset. This command does it, and may reset "
                "every GPU of the machine and end what runs there: amd-smi reset --gpureset --gpu "
                f"{bus or 'BDF, with a BDF of `amd-smi list`'}. Or restart; {_GO_ON}"
            )


_GO_ON = "then run the same command: it goes on after the last finished step."


def run_board(args: argparse.Namespace) -> None:
    """Run the steps that are not finished, and write the file of all."""
    table = read_steps()
    arch = args.arch or _present_arch(table)
    if args.probe:
        probe(arch, args.probe)
        return
    if args.patience <= 0:
        raise UsageError(f"--patience is {args.patience:g}: give a number above 0.")
    host = _host(args.work)
    work = (args.work / f"{arch}-{host}-{args.tier}").absolute()
    steps = plan_steps(table, arch, args.tier, rocm=rocm.locate() is not None)
    if unknown := {*args.only, *args.again} - {step.stage for step in steps}:
        raise UsageError(f"no step {', '.join(sorted(unknown))}: there are {', '.join(step.stage for step in steps)}.")
    commit = (git(PROJECT, "describe", "--always", "--dirty") or b"unknown").decode().strip()
    epoch = int(git(PROJECT, "show", "--no-patch", "--format=%ct") or 0)
    facts = Facts(  # a commit that does not change the program repeats no step
        commit=program_digest(), tier=args.tier, upstream=table.upstream,
        upstream_identity=check_upstream(table.upstream).sha256, toolchain="embedded",
    )  # fmt: skip
    os.environ[VARIABLE] = "0"  # each step names its compiler and its device
    with hold_lock(work / ".lock", "name another --work"):
        for step in steps:
            if step.stage in (PROBE, *args.again):
                (work / record_path(step.arch, step.stage)).unlink(missing_ok=True)
        runner = Runner(table=table, arch=arch, work=work, patience=args.patience, probe=steps[0])
        plan = QualificationPlan(
            steps=steps, facts=facts, work=work, epoch=epoch, only=(PROBE, *args.only) if args.only else (),
            finished=FINISHED, after_failure=runner.note,
        )  # fmt: skip
        about = BoardRun(
            arch=arch, host=host, date=datetime.date.today().isoformat(), commit=commit, tier=args.tier, steps=(),
            stand_in=Path("/") != rocm_places.SYSTEM,
        )  # fmt: skip
        try:
            run(plan, runner.execute)
        except BaseException:  # the GPU or somebody ended it
            if PROBE not in runner.failed:
                with contextlib.suppress(OutputError):  # the first error is the one to report
                    send(about, plan, runner, whole=False)
            raise
        send(about, plan, runner, whole=True)


def probe(arch: str, file: Path) -> None:
    """Write to the GPU's memory, and write its facts to a file."""
    from ckpm.attention.launch.device import choose  # only here: other commands do without NumPy

    device = choose("hip", arch)
    memory = device.hip.malloc(1 << 20)
    device.hip.fill(memory, 1)
    device.hip.synchronize()
    if device.hip.read(memory)[-1] != 1:
        raise DeviceError(f"the GPU of arch {arch} gives back other bytes than were written.")
    total = device.hip.properties(device.number).memory_bytes
    bus = device.hip.bus_id(device.number)  # numbers of HIP count the visible GPUs alone
    facts = {**device.context(), **device.sensors(), "memory": str(total), "bus": bus}
    write_atomically(file, as_text({**facts, "archs": ", ".join(rocm_places.gpu_archs())}))
    show(f"{facts['gpu']}, ROCm {facts['rocm']}, driver {facts['driver']}")


def _present_arch(table: BoardTable) -> str:
    present = [arch for arch in rocm_places.gpu_archs() if arch in table.archs]
    if not present:
        raise DeviceError(f"this machine has no GPU of {', '.join(table.archs)}. See ckpm doctor, row GPU.")
    hiding = [f"{name}={os.environ[name]}" for name in rocm_places.VISIBLE if os.environ.get(name)]
    if hiding and len({*present}) > 1:
        raise UsageError(
            f"this machine has GPUs of {', '.join(dict.fromkeys(present))}, and {', '.join(hiding)} hides some: name "
            "the arch of yours with --arch."
        )
    return present[0]


def _host(work: Path) -> str:
    """Eight digits that differ by machine and don't lead back to it: a digest of its random id, or of a kept one."""
    kept = work / "machine-id"
    secret = next((file.read_bytes() for file in (Path("/etc/machine-id"), kept) if file.is_file()), b"")
    if not secret:
        secret = secrets.token_bytes(16)
        write_atomically(kept, secret)
    return hashlib.blake2b(secret, key=b"ckpm first-gpu-run", digest_size=4).hexdigest()


def log_of(step: StageStep) -> Path:
    """The file of a step's output, relative to the work folder."""
    return _LOGS / f"{step.stage}.txt"


def send(about: BoardRun, plan: QualificationPlan, runner: Runner, *, whole: bool) -> None:
    """Write page and parcel, and show the page. Of a ``whole`` run, failed cases first run on the emulator, too."""
    folder = runner.work / f"{about.arch}-{about.host}-{about.date}"
    with name_write_errors(folder):
        shutil.rmtree(folder, ignore_errors=True)
    sources, steps = _sources(plan, runner)
    beside = _beside(plan, runner) if whole else {}
    sources |= {f"beside/{Path(file).name}": runner.work / file for file in beside.values()}
    names = {case: f"beside/{Path(file).name}" for case, file in beside.items()}
    texts = {page.RUN: as_text(dataclasses.asdict(dataclasses.replace(about, steps=steps, beside=names))).decode()}
    parcel.pack(sources, texts, folder, plan.epoch)
    text = page.page(read_findings(folder))
    file = parcel.pack({}, {page.PAGE: text}, folder, plan.epoch)
    show(text)
    show(f"{file}, {file.stat().st_size / 1e6:.1f} MB: no path or name of this machine is in it. Send it.")


def _sources(plan: QualificationPlan, runner: Runner) -> tuple[dict[str, Path], tuple[BoardStep, ...]]:
    """The files to send by their names, and every step of the table with its end."""
    sources: dict[str, Path] = {}
    by_stage = {step.stage: step for step in plan.steps}
    steps = []
    for name, stage in runner.table.stages.items():
        code, files, command = runner.failed.get(name), dict[str, str](), "not for this machine"
        if step := by_stage.get(name):
            command = step.shown
            file = plan.work / record_path(step.arch, name)
            if file.exists() and (record := StageRecord.read(file)).facts == plan.facts:
                code = record.code
                sent = {role: path for role, path in step.outputs.items() if role in SENT and path in record.outputs}
                files = {role: f"{name}/{Path(path).name}" for role, path in sent.items()}
                sources |= {files[role]: plan.work / path for role, path in sent.items()}
            if (log_file := plan.work / log_of(step)).exists():
                sources[f"logs/{name}.txt"] = log_file
        steps.append(BoardStep(name=name, question=stage.question, command=command, code=code, files=files))
    return sources, tuple(steps)


def _beside(plan: QualificationPlan, runner: Runner) -> dict[str, str]:
    """Run failed cases on the emulator: the file of each result, by case."""
    outputs = [runner.work / step.outputs["results"] for step in plan.steps if "results" in step.outputs]
    failing = [case.name for file in outputs if file.exists() for case in Results.read(file).failing]
    files = {name: f"build/beside/{n}.json" for n, name in enumerate(list(dict.fromkeys(failing))[:_MOST_BESIDE])}
    library = ("--arch", runner.arch, "--upstream", runner.table.upstream, "--tier", plan.facts.tier)
    steps = []
    for name, file in files.items():
        suite, _, case = name.partition("/")
        command = ("test", "--suite", suite, *library, "--device", "emulator", "--case", case, "--output", file)
        stage = f"beside-{Path(file).stem}"
        steps.append(StageStep(stage=stage, arch=runner.arch, command=command, outputs={"results": file}, needs=()))
    others = dataclasses.replace(plan, steps=tuple(steps), only=(), after_failure=lambda step, code: None)
    written = {file for record in run(others, runner.execute).values() for file in record.outputs}
    return {name: file for name, file in files.items() if file in written}


def show_results(args: argparse.Namespace) -> None:
    """Show a file's page, its differences from another file, or add its times to a score."""
    with tempfile.TemporaryDirectory(prefix="ckpm-") as temporary:
        findings = read_findings(parcel.open_parcel(args.file, Path(temporary) / "first"))
        if args.against:
            other = read_findings(parcel.open_parcel(args.against, Path(temporary) / "second"))
            show(page.compare_boards(findings, other))
        elif args.score is None:
            show(page.page(findings))
        else:
            add_to_score(findings, args)


def add_to_score(findings: BoardFindings, args: argparse.Namespace) -> None:
    """Add a board's times to a score as group OWN."""
    if findings.run.stand_in:
        raise UsageError(f"{args.file}: a stand-in took the place of the GPU: its times are of no board.")
    if findings.times is None:
        raise UsageError(f"{args.file}: it has no times of published problems.")
    score = with_board(Score.read(args.score), findings.times)
    score.write(args.score)
    show(f"group own: {score.groups[OWN].error:.1%} of {score.groups[OWN].rows} rows; {args.score}")

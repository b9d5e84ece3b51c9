"""Join the results of a workflow's jobs in one build/ folder, and fail if a planned result is missing.

The arch is in a job's name. Its manifests and the cases of its suites must be of this arch and no other.
"""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from ckpm.base.display import show
from ckpm.base.errors import InconclusiveError, InputError
from ckpm.base.files import name_write_errors
from ckpm.base.records import Source, Value
from ckpm.matrix.sessions import sessions
from ckpm.reports.junit import merge, read_shard
from ckpm.reports.page.commands import write_summary
from ckpm.workflows.outputs import Jobs, jobs

_OF_A_LIBRARY = ("arch", "upstream", "library", "command")  # fields of a build and of a run in a plan
_LARGEST = 1 << 30  # bytes: larger than any result
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--plan", type=Path, required=True, metavar="FILE", help="the plan of the jobs")
    parser.add_argument("--artifacts", type=Path, required=True, metavar="DIR", help="a folder for each artifact")
    parser.add_argument("--output", type=Path, default=Path("build"), metavar="DIR", help="(default: %(default)s)")
    parser.set_defaults(run=lambda args: report(args.plan, args.artifacts, args.output))


def add_ran_on_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arch", required=True, metavar="ARCH", help="the arch of the job")
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of the job's results")
    parser.set_defaults(run=lambda args: demand_arch(args.folder, args.arch))


def demand_arch(folder: Path, arch: str) -> None:
    """Check that a job's results are of its arch, and that a case of a suite ran there and passed."""
    cases = [case for file in folder.rglob("*.json") for case in _cases(file)]
    complaint = _other_archs(folder, arch)
    if not complaint and not any(case.get("outcome").text() == "passed" for case in cases):
        complaint = f"{folder}: no case of a suite passed, so that nothing shows that the job ran on {arch}"
    if complaint:
        raise InconclusiveError(f"{complaint}. See the job's log.", kind="wrong-arch")
    show(f"{folder}: {len(cases)} cases, all of {arch}")


def report(plan: Path, artifacts: Path, output: Path) -> None:
    """Join the results by :func:`collect`, and write the report even if a result is missing."""
    try:
        collect(plan, artifacts, output)
    finally:
        if any(output.glob("*/*/manifest.json")):
            write_summary(output, output / "report.md", output / "report.html")


def collect(plan: Path, artifacts: Path, output: Path) -> None:
    """Copy results of runs and checks to ``output``, join all JUnit as ``all.xml``, and check that none is missing.

    Args:
        plan: the file of ``ckpm plan --output``.
        artifacts: a folder for each job's artifact, named like the job.
        output: ``build/``, the input of reports.
    """
    document = _read(plan)
    planned = _planned_jobs(document)
    results = [_results(run) for run in document.get("runs").items()]
    missing = [text for entry in planned["builds"] if (text := _without_kernels(artifacts / entry["name"]))]
    lanes = [*planned["builds"], *planned["runs"]]
    missing += [text for entry in lanes if (text := _other_archs(artifacts / entry["name"], entry["arch"]))]
    junit_files: list[Path] = []
    for entry in [*planned["runs"], *planned["checks"]]:
        folder = artifacts / entry["name"]
        if folder.is_dir():
            with name_write_errors(output):
                # links stay links: a link can lead to its own folder
                shutil.copytree(folder, output, dirs_exist_ok=True, symlinks=True, copy_function=_copy)
        junit_files += sorted(file for file in folder.rglob("*.xml") if file.is_file())
    for entry, names in zip(planned["runs"], results, strict=True):
        missing += [text] if (text := _without_cases(artifacts / entry["name"], names)) else []
    if junit_files:
        merge(junit_files, output / "all.xml")
    if missing:
        raise InconclusiveError(
            "\n".join(missing) + "\nRun these jobs again, or see why they wrote nothing.", kind="nothing-done"
        )


def _copy(source: str, target: str) -> None:
    """Copy a file of a plausible size, so that a hostile artifact does not fill the disk."""
    if Path(source).stat().st_size > _LARGEST:
        raise InconclusiveError(
            f"{source}: has more than {_LARGEST >> 20} MiB, which is too large for a result. Remove it.",
            kind="nothing-done",
        )
    shutil.copy2(source, target)


def _without_kernels(folder: Path) -> str:
    """Return the defect of a build's artifact, "" if its manifest lists kernels."""
    manifests = [_read(file) for file in folder.rglob("manifest.json")]
    if any(manifest.optional("kernels", Value.members, {}) for manifest in manifests):
        return ""
    return f"{folder.name}: no manifest with a kernel in it"


def _other_archs(folder: Path, arch: str) -> str:
    """Return the defect of a job's artifact that has a library or a case of another arch, "" if it has none."""
    archs = [name for file in folder.rglob("manifest.json") for name in _read(file).optional("archs", Value.items, [])]
    archs += [case.get("arch") for file in folder.rglob("*.json") for case in _cases(file)]
    others = sorted({name.text() for name in archs} - {arch})
    return f"{folder.name}: results of {', '.join(others)} in a job of {arch}" if others else ""


def _cases(file: Path) -> list[Value]:
    """The cases of a suite's results; none in another file."""
    return _read(file).optional("cases", Value.items, []) if file.stem in sessions().suites else []


def _results(run: Value) -> list[str]:
    """The suites and gates of a run, by the names of their result files."""
    suites = [suite.text() for suite in run.get("suites").items()]
    return [*suites, "gate"] if run.get("gate").truth() else suites


def _without_cases(folder: Path, results: Iterable[str]) -> str:
    """Return the defect of a run's artifact, "" if every suite has a case and every gate a row."""
    lacking = [result for result in results if not _has_result(folder, result)]
    return f"{folder.name}: no results of {', '.join(lacking)}" if lacking else ""


def _has_result(folder: Path, suite: str) -> bool:
    if suite == "gate":
        return any(_read(file).optional("rows", Value.items, []) for file in folder.rglob("gate.json"))
    files = list(folder.rglob(f"{suite}.xml"))
    try:
        return bool(files) and all(len(read_shard(file)) > 0 for file in files)
    except InputError:
        return False


def _read(file: Path) -> Value:
    """Read a JSON file."""
    return Source(file, "a result of a job", "Run the job that writes it again.", InconclusiveError).read()


def _planned_jobs(document: Value) -> Jobs:
    """The jobs of a plan. Their names must be fit for folders."""
    commands = document.get("check_commands").texts()
    builds = [_texts(row, "shard", *_OF_A_LIBRARY) for row in document.get("builds").items()]
    runs = [_texts(row, *_OF_A_LIBRARY) for row in document.get("runs").items()]
    planned = jobs({"check_commands": commands, "builds": builds, "runs": runs})
    for entry in (entry for entries in planned.values() for entry in entries):
        if not _NAME.fullmatch(entry["name"]):
            raise document.fail(f"{entry['name']!r} is not a name of a job")
    return planned


def _texts(row: Value, *names: str) -> dict[str, str]:
    return {name: row.get(name).text() for name in names}

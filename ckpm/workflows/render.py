"""Render the workflows from template_values.yaml, templates and the matrix, and nox.txt from requirements.txt."""

from __future__ import annotations

import argparse
import difflib
import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import jinja2
import msgspec
from msgspec import Meta

from ckpm.base.display import show
from ckpm.base.errors import CheckFailedError
from ckpm.base.files import write_if_changed
from ckpm.base.paths import PROJECT, data
from ckpm.base.tablefile import Record, read_table
from ckpm.kernels.changes.plan import every_build
from ckpm.kernels.changes.rules import rules
from ckpm.matrix.sessions import sessions
from ckpm.reports.release.sbom import find_needed, pins
from ckpm.reports.release.stages import StageTable, read_stages

HERE = data(".github")
FOLDER = Path(".github") / "workflows"
NOX = Path(".github") / "nox.txt"
LABELS = Path(".github") / "actionlint.yaml"
# The commit that a plan compares with: of a pull request, of a merge queue, of a push. A clone lacks the commit before
# a push that creates a branch, and before a forced one.
BASE = (
    "github.event.pull_request.base.sha || github.event.merge_group.base_sha || "
    "(github.event.created || github.event.forced) && 'HEAD^' || github.event.before"
)
_KNOWN_LABELS = {"self-hosted", "linux", "x64"}  # GitHub's own labels of self-hosted runners


class _Action(Record, frozen=True):
    uses: str
    sha: Annotated[str, Meta(pattern="^[0-9a-f]{40}$")]
    version: str
    verified: str | bool


class _Gpu(Record, frozen=True):
    labels: list[str]
    image: str


class _Head(Record, frozen=True):
    repository: str
    branch: str
    folder: str


class _Release(Record, frozen=True):
    waivers: str
    builder: str


class WorkflowTable(Record, frozen=True):
    """The record of template_values.yaml: values of the templates."""

    actions: dict[str, _Action]
    runner: str
    python: str
    pythons: list[str]
    minutes: dict[str, int]
    days: dict[str, int]
    gpus: dict[str, _Gpu]
    nightly: str
    head: _Head
    release: _Release
    cache: dict[str, list[str]]


def add_options(parser: argparse.ArgumentParser) -> None:
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true", help="write .github/workflows from the templates")
    mode.add_argument("--check", action="store_true", help="fail if a file differs from its template")
    parser.set_defaults(
        run=lambda args: show("".join(f"{file}\n" for file in write()), end="") if args.write else check()
    )


def names() -> list[str]:
    """The names of the workflows, which are the names of the templates."""
    return sorted(file.name.removesuffix(".yml.j2") for file in (HERE / "templates").glob("*.yml.j2"))


def render_all() -> dict[Path, str]:
    """The text of each rendered file by its path in the project."""
    values = settings()
    engine = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        undefined=jinja2.StrictUndefined,
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701 - YAML is written, not HTML
    )
    texts = {}
    for name in names():
        source = f".github/templates/{name}.yml.j2"
        head = f"# Rendered from {source} by `ckpm workflows render --write`: edit that.\n"
        text = engine.get_template(f"{name}.yml.j2").render(values)
        texts[FOLDER / f"{name}.yml"] = head + re.sub(r"\n\s*\n", "\n", text).strip() + "\n"
    labels = sorted({label for gpu in values["gpus"].values() for label in gpu.labels} - _KNOWN_LABELS)
    head = "# Labels of our own runners, for actionlint. Rendered.\n"
    texts[LABELS] = f"{head}self-hosted-runner:\n  labels: [{', '.join(labels)}]\n"
    texts[NOX] = nox_requirements((PROJECT / "requirements.txt").read_text(encoding="utf-8"))
    return texts


def settings() -> dict[str, Any]:
    """The values for the templates: template_values.yaml, and the sessions, archs and stages of other tables."""
    values = msgspec.structs.asdict(read_table(HERE / "template_values.yaml", WorkflowTable).record)
    table = sessions()
    hardware = (table.suites[suite] for suite in table.table_suites if not table.suites[suite].device)
    stages = read_stages()
    return {
        **values,
        "base": BASE,
        "build": {arch: table.build.format(arch=arch) for arch in table.archs},
        "gpu_sessions": " ".join([*(suite.session for suite in hardware), table.gate]),
        "emulated": table.emulated,
        "table_suites": " ".join(suite.session for suite in map(table.suites.get, table.table_suites) if suite),
        "tests": table.test_files,
        "objects": every_build(rules()),
        "release": {**msgspec.structs.asdict(values["release"]), "archs": stages.archs, "upstream": stages.upstream},
        **_release_stages(stages),
        "quoted": lambda patterns: ", ".join(f"'{pattern}'" for pattern in patterns),
    }


def _release_stages(release: StageTable) -> dict[str, Any]:
    """Group the stages of each arch into jobs. Stages that need every arch run in the job that joins the shards.

    A stage that one other stage needs runs in that stage's job. Every other stage gets a job of its own. Jobs of one
    arch that need the same jobs become a matrix.
    """
    table = release.stages
    own = {name: stage for name, stage in table.items() if stage.each_arch}
    users = {name: [user for user, stage in own.items() if name in stage.needs] for name in own}
    last = {name: users[name][0] if len(users[name]) == 1 else name for name in own}
    jobs = [
        {
            "name": f"{arch}-{job}",
            "arch": arch,
            "stages": [name for name in own if last[name] == job],
            "needs": [
                f"{arch}-{need}"
                for need in own
                if last[need] != job and any(need in own[name].needs for name in own if last[name] == job)
            ],
        }
        for arch in release.archs
        for job in dict.fromkeys(last[name] for name in own)
    ]
    project = [name for name, stage in table.items() if not stage.each_arch and not stage.needs]
    grouped = []
    for _, alike in itertools.groupby(jobs, key=_alike):
        first, *others = alike
        if others:
            first = {**first, "name": f"{first['arch']}-stages"}
        grouped.append({**first, "matrix": [job["stages"][-1] for job in (first, *others)] if others else []})
    shards = ["project", *(job["name"] for job in jobs)]
    return {"project_stages": project, "release_jobs": grouped, "shards": shards}


def _alike(job: Mapping[str, Any]) -> tuple[str, Any]:
    """The arch and needs of a job with one stage, which jobs of one matrix share; the name of any other job."""
    return job["arch"], job["needs"] if len(job["stages"]) == 1 and job["needs"] else job["name"]


def nox_requirements(requirements: str) -> str:
    """Lines of requirements.txt for nox and the packages it needs, found by their `via` comments."""
    pinned = pins(requirements)
    wanted = find_needed(pinned, ("nox",))
    head = "# nox and its packages from requirements.txt, for runners; sessions install the rest. Rendered.\n"
    return head + "".join(f"{pin.text}\n" for pin in pinned if pin.name in wanted)


def write(root: Path = PROJECT) -> list[Path]:
    """Write every rendered file and return the changed ones."""
    return [file for file, text in render_all().items() if write_if_changed(root / file, text)]


def check(root: Path = PROJECT) -> None:
    """Check that each file equals its rendered template."""
    wanted = render_all()
    differences = [_difference(root / file, file, text) for file, text in wanted.items()]
    strangers = {file.relative_to(root) for file in (root / FOLDER).glob("*.y*ml")} - set(wanted)
    differences += [f"{file}: has no template" for file in sorted(strangers)]
    if stale := [text for text in differences if text]:
        raise CheckFailedError(
            "\n".join(stale) + "\nEdit .github/templates or template_values.yaml, then: ckpm workflows render --write",
            kind="stale-workflow",
        )


def _difference(path: Path, file: Path, text: str) -> str:
    present = path.read_text(encoding="utf-8") if path.is_file() else ""
    lines = difflib.unified_diff(present.splitlines(), text.splitlines(), str(file), "rendered", n=0, lineterm="")
    return "\n".join(list(lines)[:10])

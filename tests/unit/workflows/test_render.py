"""Rendered workflows equal their templates, are pinned, have least permissions and run sessions that exist."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ckpm.base.errors import CheckFailedError
from ckpm.commands import main
from ckpm.kernels.changes import plan
from ckpm.kernels.changes.history import commit_of
from ckpm.kernels.changes.rules import Effect, rules
from ckpm.matrix.dialects import dialect, upstreams
from ckpm.matrix.problems.case import SUITES
from ckpm.matrix.selection import Selection, select
from ckpm.reports.release import record, stages
from ckpm.workflows import render, runner
from tests.unit.shared import git

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
_LISTED = [sys.executable, "-m", "nox", "--list"]
MARKERS = [
    line.partition(":")[0]
    for line in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["markers"]
]
SESSIONS = set(
    re.findall(
        r"^[-*] ([\w-]+)", subprocess.run(_LISTED, cwd=ROOT, capture_output=True, text=True).stdout, re.MULTILINE
    )
)


def document(name: str) -> dict[Any, Any]:
    workflow: dict[Any, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())
    return workflow


def steps(name: str) -> list[dict[str, Any]]:
    return [step for job in document(name)["jobs"].values() for step in job["steps"]]


def release_jobs() -> dict[str, Any]:
    """The jobs of a release by name, with a job for each stage of a matrix."""
    jobs, names = {}, dict[str, list[str]]()
    for name, job in document("release")["jobs"].items():
        for stage in job.pop("strategy", {"matrix": {"stage": [""]}})["matrix"]["stage"]:
            whole = re.sub(r"-stages$", f"-{stage}", name)
            names.setdefault(name, []).append(whole)
            jobs[whole] = json.loads(json.dumps(job).replace("${{ matrix.stage }}", stage))
            jobs[whole]["needs"] = [needed for need in job.get("needs", ()) for needed in names[need]]
    return jobs


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / ".github", tmp_path / ".github")
    (tmp_path / "workflows").mkdir()
    shutil.copy(ROOT / render.NOX, tmp_path / render.NOX)
    return tmp_path


def test_committed_files_equal_their_templates(copy: Path) -> None:
    assert main(["workflows", "render", "--check"]) == 0
    assert render.write(copy) == []


def test_file_edited_by_hand_is_reported_and_rewritten(copy: Path) -> None:
    file = copy / ".github" / "workflows" / "release.yml"
    file.write_text(file.read_text().replace("contents: read", "contents: write", 1))
    with pytest.raises(CheckFailedError, match=r"release\.yml") as caught:
        render.check(copy)
    assert "-      contents: write # to check out" in str(caught.value)
    assert render.write(copy) == [Path(".github/workflows/release.yml")]
    render.check(copy)


def test_missing_template_or_workflow_is_reported(copy: Path) -> None:
    (copy / ".github" / "workflows" / "stray.yaml").write_text("on: push\n")
    with pytest.raises(CheckFailedError, match=r"stray\.yaml: has no template"):
        render.check(copy)
    (copy / ".github" / "workflows" / "stray.yaml").unlink()
    (copy / ".github" / "workflows" / "release.yml").unlink()
    with pytest.raises(CheckFailedError, match=r"release\.yml"):
        render.check(copy)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_actions_are_pinned_by_commit_and_version(file: Path) -> None:
    uses = re.findall(r"uses: (.*)", file.read_text())
    assert uses
    for action in uses:
        assert re.fullmatch(r"[\w-]+/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+(, unverified)?", action), action


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_only_publishing_jobs_may_write(file: Path) -> None:
    workflow = yaml.safe_load(file.read_text())
    assert workflow["permissions"] == {}
    assert set(workflow["concurrency"]) == {"group", "cancel-in-progress"}
    for name, job in workflow["jobs"].items():
        writing = {
            "publish": {"contents": "write", "id-token": "write", "attestations": "write"},
            "pypi": {"id-token": "write"},
        }
        assert job["permissions"] == writing.get(name, {"contents": "read"})
        assert 0 < job["timeout-minutes"] <= 360


def test_gpu_runners_are_out_of_reach_of_pull_requests() -> None:
    for file in FILES:
        workflow = yaml.safe_load(file.read_text())
        own = any("self-hosted" in job["runs-on"] for job in workflow["jobs"].values())
        assert own == (file.stem == "gpu-nightly")
        if own:
            assert set(workflow[True]) == {"schedule", "workflow_dispatch"}
            assert all("default_branch" in job["if"] for job in workflow["jobs"].values())
        assert not {"pull_request_target", "workflow_run"} & set(workflow[True])


def test_gpu_jobs_are_off_without_variable() -> None:
    """A job whose runner does not exist waits for 24 hours and fails."""
    for job in document("gpu-nightly")["jobs"].values():
        assert ("vars.GPU_RUNNERS == 'true' && " in job["if"]) == ("self-hosted" in job["runs-on"])


def test_commands_for_an_arch_pass_it() -> None:
    """Without --arch a command takes the default arch. Sessions that build have the arch in their names."""
    compared = []
    for file in FILES:
        for name, job in yaml.safe_load(file.read_text())["jobs"].items():
            texts = [text for step in job["steps"] for text in (*step.get("env", {}).values(), step.get("run", ""))]
            for line in (line for text in texts for line in re.split(r"\n|&&", str(text))):
                archs = {*re.findall(r"^gfx\w+", name)} or {*re.findall(r"gfx\w+", re.sub(r"--shard \S+", "", line))}
                if re.search(r"nox -s (?!report)|-m ckpm ", line) and archs:
                    assert {*re.findall(r"(?:--arch | build-)(gfx\w+)", line)} == archs, line
                    compared += [*archs] if "compare --arch" in line else []
    assert sorted(compared) == sorted(render.settings()["gpus"])


def test_required_check_runs_for_merge_queues_and_pushes() -> None:
    """A merge queue waits for ever for a required check that does not run for `merge_group`."""
    workflow = document("pull-request")
    assert workflow[True] == {"pull_request": None, "merge_group": None, "push": {"branches": ["main"]}}
    (plan_command,) = (step["env"]["COMMAND"] for step in steps("pull-request") if "--since" in str(step))
    for event in ("pull_request.base.sha", "merge_group.base_sha", "before"):
        assert f"github.event.{event}" in plan_command
    assert set(workflow["jobs"]["report"]["needs"]) == {*workflow["jobs"]} - {"report"}


@pytest.mark.parametrize(
    ("event", "base"),
    [
        ({"pull_request": {"base": {"sha": "first"}}}, "first"),
        ({"merge_group": {"base_sha": "first"}}, "first"),
        ({"before": "first", "created": False, "forced": False}, "first"),
        ({"before": "0" * 40, "created": True, "forced": False}, "second"),  # GitHub has no commit before a new branch
        ({"before": "f" * 40, "created": False, "forced": True}, "second"),  # no branch has the replaced commit
    ],
)
def test_base_of_a_plan_is_a_commit_of_the_clone(event: dict[str, Any], base: str, tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    for name in ("first", "second", "third"):
        git(tmp_path, "commit", "--quiet", "--allow-empty", "-m", name)
        git(tmp_path, "tag", name)

    def value(match: re.Match[str]) -> str:
        member: Any = event
        for part in match[1].split("."):
            member = (member or {}).get(part)
        return repr(member)

    expression = re.sub(r"github\.event\.([\w.]+)", value, render.BASE)
    named = eval(expression.replace("||", "or").replace("&&", "and"))
    assert commit_of(tmp_path, named) == commit_of(tmp_path, base)


def test_required_check_fails_in_a_cancelled_run() -> None:
    """GitHub: a job that is skipped by its condition reports success, also as a required check."""
    report = document("pull-request")["jobs"]["report"]
    (verdict,) = (step for step in report["steps"] if "ckpm.workflows.verdict" in step.get("run", ""))
    assert report["if"] == verdict["if"] == "${{ always() }}"
    assert verdict["env"] == {"NEEDS": "${{ toJSON(needs) }}"}


def test_unit_tests_run_on_oldest_and_newest_python() -> None:
    job = document("pull-request")["jobs"]["python"]
    oldest, newest = job["strategy"]["matrix"]["python"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={oldest}"
    assert newest != oldest
    assert "nox -s tests -- unit" in str(job["steps"])


def test_planned_minutes_fit_the_limits_of_jobs() -> None:
    """Ten minutes are for the checkout, the environment and the cache."""
    limits, table = render.settings()["minutes"], rules()
    assert all(check.minutes + 10 <= limits["check"] for check in table.checks.values())
    assert all(library.shard_minutes + 10 <= limits["library"] for library in table.libraries)
    assert all(library.run_minutes + 10 <= limits["results"] for library in table.libraries)
    full = plan._plan("", {"x": Effect(reason="all", everything=True)}, (), {}, table)
    families = {library.name: library.families for library in table.libraries}
    for run in full.runs:  # the objects' job compiles each smoke tier in the minutes of one shard
        smoke = Selection(archs=(run.arch,), families=families[run.library], tier=plan.SMOKE)
        assert len(select(dialect(upstreams()[run.upstream].dialect), smoke)) <= table.kernels_per_shard
    compiled = {library.name: library.shard_minutes for library in table.libraries}
    minutes = [build.minutes for build in full.builds] + [compiled[run.library] for run in full.runs]
    assert sum(minutes) + 10 <= limits["objects"]


def test_installed_wheels_run_an_example_before_they_are_kept() -> None:
    names = [step["name"] for step in document("release")["jobs"]["wheels"]["steps"]]
    example = names.index("The installed wheels run an example outside of the clone")
    assert names.index("Wheel of prebuilt libraries") < example < names.index("Keep wheels")


def test_publishing_to_package_index_is_off_without_variable() -> None:
    job = document("release")["jobs"]["pypi"]
    assert (job["if"], job["environment"], job["needs"]) == ("vars.PYPI == 'true'", "pypi", ["publish"])


def test_jobs_follow_the_jobs_they_need() -> None:
    for file in FILES:
        jobs = yaml.safe_load(file.read_text())["jobs"]
        for number, job in enumerate(jobs.values()):
            needs = job.get("needs", [])
            assert ({needs} if isinstance(needs, str) else set(needs)) <= set(list(jobs)[:number])


def test_caches_are_keyed_by_content_and_not_for_releases() -> None:
    assert not any("cache" in step.get("uses", "") for step in steps("release"))
    restored = [step["with"] for name in ("pull-request", "objects") for step in steps(name) if "restore" in str(step)]
    assert len(restored) == 4
    assert all(inputs == restored[0] for inputs in restored), "pull requests look for what the default branch stores"
    # the action excludes what a pattern lists by itself, and not a part of a folder that it lists whole
    cache = "~/.cache/ck-prefill-matrix"
    assert restored[0]["path"].split() == ["~/.cache/pip", f"{cache}/*", f"!{cache}/headers"]
    key = restored[0]["key"]
    assert {"requirements.txt", "matrix/upstreams.yaml"} <= set(re.findall(r"'([^']+)'", key))
    assert not re.search(r"run_id|run_number|date|time|matrix\.", key)
    for prefix in restored[0]["restore-keys"].split("\n")[:-1]:
        assert f"{key}-".startswith(prefix)


def test_cache_key_has_each_file_that_kernels_are_compiled_from() -> None:
    """Else the workflow of objects takes the old objects for complete, and each pull request compiles the new ones."""
    cache = render.settings()["cache"]
    patterns = [re.sub(r"\*\*$", "**/*", pattern) for pattern in (*cache["compiler"], *cache["sources"])]
    covered = {file for pattern in patterns for file in ROOT.glob(pattern)}
    effects = {file: rules().effect(file.relative_to(ROOT).as_posix()) for top in ("ckpm", "kernels", "matrix")
               for file in (ROOT / top).rglob("*.*") if file.suffix != ".pyc"}  # fmt: skip
    building = {file for file, effect in effects.items() if effect.families or effect.compare == "kernels"}
    building |= {file for file in effects if file.is_relative_to(ROOT / "kernels")}
    assert {ROOT / "kernels/spellings.yaml", ROOT / "kernels/templates/unit.hip.j2"} <= building
    assert sorted(building - covered) == []


def test_only_default_branch_stores_objects() -> None:
    """A cache of a pull request is restored by this pull request alone, and takes from the 10 GB of all."""
    saving = {file.stem: [step for step in steps(file.stem) if "cache/save" in step.get("uses", "")] for file in FILES}
    assert [name for name, saving_steps in saving.items() if saving_steps] == ["objects"]
    assert document("objects")[True] == {"push": {"branches": ["main"]}}
    (save,) = saving["objects"]
    assert save["if"].startswith("${{ always() && ")  # what a failed job compiled is kept, too
    assert save["with"]["key"].startswith("${{ steps.cache.outputs.cache-primary-key }}")
    assert "job.status != 'success'" in save["with"]["key"]  # a partial cache must not take the complete one's name


def test_objects_are_those_of_every_planned_build(tmp_path: Path) -> None:
    """The plan of a commit that touches everything is the expectation."""
    (job,) = document("objects")["jobs"].values()
    (lines,) = (step["env"]["COMMANDS"].splitlines() for step in job["steps"] if "COMMANDS" in step.get("env", {}))
    change = Effect(reason="all", everything=True)
    full = plan._plan("", {"x": change}, (), {}, rules())
    assert {build.command for build in full.builds} <= {*lines}
    smoke = {re.sub(r"(nox -s build-\w+) .*? -- ", r"\1 -- ", run.command) for run in full.runs}
    assert {*lines} == {build.command for build in full.builds} | smoke


def test_objects_of_later_libraries_are_compiled_after_failure(tmp_path: Path) -> None:
    (script,) = (step["run"] for step in steps("objects") if "COMMANDS" in step.get("env", {}))
    stub = tmp_path / "bin/python"
    stub.parent.mkdir()
    stub.write_text('#!/bin/sh\ncat\necho "$3" >> log\n[ "$3" != b ] || exit 7\n')
    stub.chmod(0o755)
    environment = {**os.environ, "COMMANDS": "a\nb\nc\n", "PATH": f"{stub.parent}:{os.environ['PATH']}"}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    assert subprocess.run(command, cwd=tmp_path, env=environment, check=False).returncode == 7
    assert (tmp_path / "log").read_text() == "a\nb\nc\n"


def test_release_downloads_the_files_of_every_stage(tmp_path: Path) -> None:
    """Check that --shard finds the files of every stage after the workflow's own uploads and downloads."""
    jobs = release_jobs()
    commands = {
        name: " ".join(step.get("env", {}).get("COMMAND", "") for step in job["steps"]) for name, job in jobs.items()
    }
    left_over = set()
    for step in stages.steps(stages.read_stages(), ("gfx942", "gfx950"), upstream="aiter", tier="full", toolchain="x"):
        arch = "" if step.arch == stages.PROJECT else f"--arch {step.arch} "
        job_names = [
            name for name, text in commands.items() if arch in text and re.search(rf"--only {step.stage}( |$)", text)
        ]
        if not job_names:
            left_over.add(step.stage)
            continue
        (job,) = job_names
        for need in step.needs:  # a stage of the same job, or the shard of a job before
            (provider,) = (
                name
                for name, text in commands.items()
                if re.search(rf"--only {need.partition('/')[2]}( |$)", text) and arch in text
            )
            assert provider == job or f"--shard build/shards/{provider}" in commands[job], step.name
        files = [*map(Path, step.outputs.values()), record.record_path(step.arch, step.stage)]
        for reader in ["qualification", *(name for name in jobs if job in jobs[name]["needs"] if name in commands)]:
            transfer(jobs, job, reader, files, tmp_path / reader / step.name)
    assert left_over == {"report"}  # of every arch at once, made where they are joined
    assert "--only" not in commands["qualification"]
    assert "--waivers" in commands["qualification"]


def transfer(jobs: dict[str, Any], job: str, reader: str, files: list[Path], folder: Path) -> None:
    """Upload files of a job, download them in another, and check that the reader's --shard has them."""
    clone, artifacts = folder / "clone", folder / "artifacts"
    for file in files:
        (clone / file).parent.mkdir(parents=True, exist_ok=True)
        (clone / file).write_text("left")
    (upload,) = (step["with"] for step in jobs[job]["steps"] if "upload-artifact" in step.get("uses", ""))
    runner.upload(upload, clone, artifacts)
    (download,) = (
        step["with"]
        for step in jobs[reader]["steps"]
        if "download-artifact" in step.get("uses", "") and step["with"]["name"] == upload["name"]
    )
    runner.download(download, folder / "last", artifacts)
    text = " ".join(step.get("env", {}).get("COMMAND", "") for step in jobs[reader]["steps"])
    (shard,) = re.findall(rf"--shard (\S+/{job})(?: |$)", text)
    assert all((folder / "last" / shard / file).read_text() == "left" for file in files)


def test_each_suite_of_release_has_own_job() -> None:
    """A job ends after 360 minutes, and all stages of an arch were one job."""
    for name, job in release_jobs().items():
        suites = re.findall(rf"--only ({'|'.join(SUITES)})(?: |$)", str(job))
        assert len(suites) <= 1, name


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_commands_are_sessions_without_foreign_text(file: Path) -> None:
    text = file.read_text()
    outer = re.findall(r"nox -s (.*?)(?: -- |\"|$)", text, re.MULTILINE)
    inner = re.findall(r"in-container -- (.*?) --", text)
    named = {word for command in (*outer, *inner) for word in command.split()}
    assert named <= SESSIONS
    assert bool(inner) == (file.stem == "gpu-nightly")
    assert named
    for step in steps(file.stem):
        assert "${{" not in step.get("run", "")


@pytest.fixture
def nightly(tmp_path: Path) -> Callable[[str], int]:
    """``nightly(baseline)`` runs the step that builds the baseline of a clone, with a `python` that does nothing."""
    script = next(step["run"] for step in steps("gpu-nightly") if "BASELINE" in step.get("env", {}))
    clone, stub = tmp_path / "clone", tmp_path / "bin/python"
    stub.parent.mkdir()
    stub.write_text("#!/bin/sh\ntouch built\n")
    stub.chmod(0o755)
    git(tmp_path, "init", "-q", str(clone))
    for number in ("1", "2"):
        git(clone, "commit", "--quiet", "--allow-empty", "-m", number)

    def run(baseline: str) -> int:
        environment = {**os.environ, "BASELINE": baseline, "PATH": f"{stub.parent}:{os.environ['PATH']}"}
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script], cwd=clone, env=environment, check=False
        ).returncode

    return run


@pytest.mark.parametrize("cleaned", [True, False])
def test_baseline_is_built_again_on_persistent_runner(
    nightly: Callable[[str], int], tmp_path: Path, cleaned: bool
) -> None:
    """actions/checkout removes untracked files, but .git lists the work tree still."""
    baseline = tmp_path / "clone/build/baseline"
    assert nightly("") == 0
    (baseline / "built").unlink()
    if cleaned:
        shutil.rmtree(baseline)
    assert nightly("HEAD") == 0
    assert (baseline / "built").exists()


@pytest.mark.parametrize("name", ["--lock", "-f", "--", "none"])
def test_baseline_that_names_no_commit_fails(nightly: Callable[[str], int], tmp_path: Path, name: str) -> None:
    assert nightly(name) != 0
    assert not (tmp_path / "clone/build/baseline").exists()


@pytest.mark.parametrize("marker", MARKERS)
def test_marker_of_tests_is_run_by_a_workflow(marker: str) -> None:
    """Tests that a session leaves out by their marker run somewhere else."""
    assert any(re.search(rf"nox -s tests -- .*-m {marker}$", file.read_text(), re.MULTILINE) for file in FILES)


def test_release_publishes_both_wheels() -> None:
    text = (ROOT / ".github/workflows/release.yml").read_text()
    pip = "pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheels . ./emulator"
    assert f"&& CXX='python -m ziglang c++' python -m {pip}\n" in text
    publish = document("release")["jobs"]["publish"]
    assert set(publish["needs"]) == {"qualification", "wheels"}
    assert {step["with"]["path"] for step in publish["steps"] if "download" in step.get("uses", "")} == {"bundle"}


def test_images_are_in_the_table() -> None:
    images = yaml.safe_load((ROOT / "docker" / "images.yaml").read_text())["images"]
    wanted = {gpu.image: arch for arch, gpu in render.settings()["gpus"].items()}
    assert all(arch in images[image]["archs"] for image, arch in wanted.items())


def test_nox_alone_is_pinned_as_in_the_requirements() -> None:
    requirements = render.nox_requirements((ROOT / "requirements.txt").read_text())
    names = set(re.findall(r"^([a-z-]+)==", requirements, re.MULTILINE))
    assert {"nox", "virtualenv", "filelock", "packaging"} <= names
    assert not {"numpy", "mypy", "ziglang"} & names
    assert requirements.count("--hash=sha256:") >= len(names)

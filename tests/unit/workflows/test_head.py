"""The lane of CK's development branch: the commit it takes, and the page about two states of an invented CK.

The states are commits of a repository. The step of the workflow gets them, and the command writes the page.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from ckpm.base.errors import SetupError
from ckpm.base.paths import PROJECT
from ckpm.base.results import LIBRARY_SHA256, CaseResult, Results
from ckpm.commands import main
from ckpm.kernels.parity.cases import tree_facts
from ckpm.kernels.upstream.tree import FMHA, Tree
from ckpm.kernels.upstream.trees import checkout
from ckpm.workflows import head
from ckpm.workflows.render import FOLDER
from tests.unit.enumerated import keys_of
from tests.unit.kernels.test_parity import DIALECT, GENERATE, texts_of
from tests.unit.kernels.test_upstream import CODEGEN, make_tree
from tests.unit.manifests import write_library
from tests.unit.reports.report_samples import manifest
from tests.unit.shared import git

FIRST, SECOND, *KEYS = keys_of(DIALECT, "batch_prefill", receipt=2)[::23]
STEPS = yaml.safe_load((PROJECT / FOLDER / "upstream-head.yml").read_text())["jobs"]["head"]["steps"]
RESOLVE = next(step for step in STEPS if "BRANCH" in step.get("env", {}))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with an invented CK in the lane's folder: the codegen of November 2025, which lists some kernels."""
    folder = tmp_path / "repository"
    git(tmp_path, "init", "-q", "-b", RESOLVE["env"]["BRANCH"], str(folder))
    git(folder, "config", "uploadpack.allowFilter", "true")
    make_tree(folder / RESOLVE["env"]["FOLDER"], CODEGEN[DIALECT])
    generator = GENERATE.format(targets=', "--targets"').replace("texts = ", "texts = args.api == 'batch_prefill' and ")
    (fmha(folder) / "generate.py").write_text(generator.replace('or "all", {})', 'or "all") or {}'))
    (folder / "other_project").mkdir()
    (folder / "other_project/file").write_text("not of CK\n")
    commit(folder, texts_of([FIRST, *KEYS]))
    return folder


def fmha(repository: Path) -> Path:
    folder: str = RESOLVE["env"]["FOLDER"]
    return repository / folder / FMHA


def commit(repository: Path, texts: Mapping[str, str]) -> str:
    """Commit the repository with a codegen that writes these texts."""
    answers = json.dumps(dict.fromkeys(("gfx942", "gfx950"), texts))
    (fmha(repository) / "answers.json").write_text(answers)
    # lists are kept in the cache by the codegen's Python files
    (fmha(repository) / "codegen/state.py").write_text(f"# {hashlib.sha256(answers.encode()).hexdigest()}\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "state")
    return git(repository, "rev-parse", "HEAD")


def resolve(repository: Path, work: Path, seen: str) -> int:
    """Run the workflow's step in ``work``."""
    work.mkdir(exist_ok=True)
    environment = {**os.environ, **RESOLVE["env"], "REPOSITORY": repository.as_uri(), "SEEN": seen}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", RESOLVE["run"]]
    return subprocess.run(command, cwd=work, env=environment, check=False).returncode


def written_page(work: Path) -> tuple[int, dict[str, list[str]]]:
    """The exit code of the command, and the page's lines by section."""
    title = (work / "build/head.txt").read_text().strip()
    folders = ["--before", str(work / "build/before"), "--ck-root", str(work / "build/now")]
    outputs = ["--results", str(work / "build"), "--output", str(work / "build/head.md")]
    code = main(["workflows", "head", *folders, *outputs, "--title", title])
    text = (work / "build/head.md").read_text()
    assert text.startswith(f"# {title}\n")
    sections = [section.splitlines() for section in text.split("\n## ")[1:]]
    return code, {name: [line for line in lines if line] for name, *lines in sections}


def test_page_names_what_changed_between_two_states(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CKPM_CACHE", str(tmp_path / "cache"))
    seen = git(repository, "rev-parse", "HEAD")
    texts = texts_of([SECOND, *KEYS])
    texts[KEYS[0].name] += "// another line\n"
    header = repository / RESOLVE["env"]["FOLDER"] / "include/ck_tile/deep.hpp"
    header.write_text("// deeper\n// by a line\n")
    now = commit(repository, texts)
    assert resolve(repository, tmp_path / "work", seen) == 0
    assert (tmp_path / "work/build/head.txt").read_text() == f"CK {now} against {seen}\n"
    assert not (tmp_path / "work/build/now/other_project").exists()
    case = CaseResult(suite="parity", classname="c", name="names", outcome="failed", message="1 missing")
    work = tmp_path / "work/build"
    Results((case,), tree_facts(checkout(work / "now", tmp_path / "cache"))).write(work / "parity.json")
    code, page = written_page(tmp_path / "work")
    assert code == 0
    assert {*page["Names"]} == {
        f"- batch_prefill {arch}: {word}: `{key.name}`"
        for arch in ("gfx942", "gfx950")
        for word, key in (("new", SECOND), ("gone", FIRST))
    }
    assert page["Text"] == [f"- another text: `{KEYS[0].name}`"]
    assert page["Files"] == [
        f"- `{FMHA}/codegen/state.py`: 1 new lines, 1 gone",
        "- `include/ck_tile/deep.hpp`: 2 new lines, 1 gone",
    ]
    assert any("branches of upstream are missing" in line and SECOND.name in line for line in page["Dispatch"])
    assert any("branches are not upstream's" in line and FIRST.name in line for line in page["Dispatch"])
    assert page["Rules"]
    assert all(f"dialect `{DIALECT}` differs" in line for line in page["Rules"])
    assert page["Checks"][:3] == [
        "- parity: 1 failed",
        "- parity: names: 1 missing",
        "- batch-prefill gfx942: **no results**",
    ]
    assert "Identification" not in page


def test_page_of_commit_that_nobody_looked_at_has_no_difference(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CKPM_CACHE", str(tmp_path / "cache"))
    assert resolve(repository, tmp_path / "work", "") == 0
    code, page = written_page(tmp_path / "work")
    assert (code, {*page}) == (0, {"Rules", "Checks"})  # the invented CK lists few of the dialect's kernels


def test_page_of_state_without_dialect_says_so_and_fails(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CKPM_CACHE", str(tmp_path / "cache"))
    (fmha(repository) / "codegen/ops/fmha_batch_prefill.py").write_text("of 2031\n")
    commit(repository, {"fmha_of_2031": "", "fmha_batch_prefill_api": ""})
    assert resolve(repository, tmp_path / "work", "") == 0
    code, page = written_page(tmp_path / "work")
    assert code == SetupError.exit_code
    assert page["Identification"][0].startswith("- refused: ")


@pytest.mark.parametrize("broken", ["no-such-branch", "no-such-repository"])
def test_branch_that_cannot_be_resolved_fails(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    if broken == "no-such-branch":
        git(repository, "branch", "-m", broken)
    else:
        repository = tmp_path / broken
    assert resolve(repository, tmp_path / "work", "") != 0


@pytest.mark.parametrize("other", ["nothing", "headers", "codegen", "library"])
def test_page_does_not_count_results_of_another_tree(tree: Tree, tmp_path: Path, other: str) -> None:
    (tree.fmha / "generate.py").touch()
    tree = dataclasses.replace(tree, name="checkout")
    tested = dataclasses.replace(tree, identity="others" if other == "headers" else tree.identity)
    facts = tree_facts(tested) | ({"checkout codegen": "0"} if other == "codegen" else {})
    Results((), facts).write(tmp_path / "parity.json")
    built = manifest() | {"upstream_identity": tested.identity}
    suite = write_library(tmp_path / "gfx950/checkout", built).parent / "large-kv.json"
    digest = "0" if other == "library" else built["artifacts"][built["library"]]
    Results((), {LIBRARY_SHA256: digest}).write(suite)
    left_out = {line.partition(":")[0] for line in head.outcomes(tmp_path, tree) if "**not counted**" in line}
    left = {"headers": {"parity", "large-kv gfx950"}, "codegen": {"parity"}, "library": {"large-kv gfx950"}}
    assert left_out == left.get(other, set())


def test_identification_names_another_dialect(tree: Tree) -> None:
    now = dataclasses.replace(tree, dialect="rocm-libraries-2026+head_dim_512")
    first, remark = head._identification(tree, now)
    assert first == "dialect `ck-2025-11` before, `rocm-libraries-2026+head_dim_512` now"
    assert "head_dim_512" in remark

"""``ckpm qualify`` and ``verify-bundle``, in a small clone with commands that are played."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpm.base.errors import SetupError
from ckpm.commands import parse
from ckpm.kernels.code.toolchains import Toolchain
from ckpm.kernels.upstream.trees import package_folder
from ckpm.matrix.dialects import upstreams
from ckpm.matrix.problems.ledger import Ledger, read_ledger
from ckpm.reports.release import commands
from ckpm.reports.release import run as stage_runs
from ckpm.reports.release.archive import write_tar
from ckpm.reports.release.verdict import known_defects
from tests.unit.reports.release.samples import EPOCH, FACTS, REQUIREMENTS, ROOT, WAIVERS, Stages, make_key, names_in
from tests.unit.shared import Run, git

IMAGE = f"example/rocm@sha256:{'a' * 64}"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    folder.mkdir()
    (folder / "requirements.txt").write_text(REQUIREMENTS)
    (folder / "pyproject.toml").write_text("[project]\ndependencies = []\n")
    (folder / ".gitignore").write_text("/build/\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


@pytest.fixture
def stages() -> Stages:
    return Stages()


@pytest.fixture
def qualify(
    clone: Path,
    tmp_path: Path,
    stages: Stages,
    stub_toolchain: Callable[..., Toolchain],
    monkeypatch: pytest.MonkeyPatch,
    run: Run,
) -> Run:
    """``qualify("--key", FILE)`` of the smoke tier in the clone, with an undamaged upstream and a stub toolchain."""
    (tmp_path / "waivers.yaml").write_text(WAIVERS)
    monkeypatch.setattr(commands, "PROJECT", clone)
    monkeypatch.setattr(commands, "run", functools.partial(stage_runs.run, execute=stages))
    monkeypatch.setattr(commands, "demand_undamaged", lambda package, cache: None)
    monkeypatch.setattr(commands, "detect", lambda choice, cache: stub_toolchain())
    identity = type("Tree", (), {"identity": FACTS.upstream_identity})
    monkeypatch.setattr(commands, "locate", lambda name, cache: identity)
    return functools.partial(run, "qualify", "--tier", "smoke", "--arch", "gfx950", "--work", str(clone))


@pytest.fixture
def waived(tmp_path: Path) -> list[str]:
    return ["--waivers", str(tmp_path / "waivers.yaml")]


def test_from_clean_commit_to_verified_bundle(
    qualify: Run, run: Run, waived: list[str], clone: Path, stages: Stages, tmp_path: Path
) -> None:
    key = make_key(tmp_path / "keys")
    code, out, _ = qualify(*waived, "--key", str(key), "--image", IMAGE)
    assert (code, out.splitlines()[0]) == (0, "passed with 1 waived defect")
    tar = Path(out.splitlines()[-1])
    first = tar.read_bytes()
    code, out, _ = run("verify-bundle", str(tar), "--allowed-signers", str(key.with_suffix(".signers")))
    assert (code, "signed by key@example.org" in out) == (0, True)
    assert tar.name == f"ckpm-{git(clone, 'rev-parse', 'HEAD')[:12]}-aiter-smoke.tar"
    ran = len(stages.called)
    assert qualify(*waived, "--key", str(key), "--image", IMAGE)[0] == 0
    assert len(stages.called) == ran  # nothing again
    assert tar.read_bytes() == first


def test_tar_of_another_time_is_refused(qualify: Run, run: Run, waived: list[str], tmp_path: Path) -> None:
    code, out, _ = qualify(*waived)
    folder = Path(out.splitlines()[-2])
    write_tar(folder, names_in(folder), EPOCH + 1, tmp_path / "other.tar")
    bundles = (folder, tmp_path / "other.tar")
    assert [code, *(run("verify-bundle", str(bundle), "--unsigned")[0] for bundle in bundles)] == [0, 0, 11]


@pytest.mark.parametrize("signs", [True, False])
def test_bundle_of_unknown_signer_has_own_exit_code(
    qualify: Run, run: Run, waived: list[str], tmp_path: Path, signs: bool
) -> None:
    """A stranger can sign, too."""
    key = make_key(tmp_path / "keys")
    code, out, _ = qualify(*waived, *(("--key", str(key)) if signs else ()))
    tar = out.splitlines()[-1]
    verified, out, err = run("verify-bundle", tar)
    assert (code, verified) == (0, 13)
    assert "in order: passed with 1 waived defect" in out
    assert "its signer is unknown. Name who may sign it with --allowed-signers FILE" in err
    assert run("verify-bundle", tar, "--unsigned")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        ([], 8, "table-read-past-end (1): not accepted"),
        (["--image", "rocm/dev:latest"], 11, "image rocm/dev:latest: not pinned"),
        (["--image", "rocm/dev@sha256:abc"], 11, "not pinned"),
        (["--only", "bxild"], 2, "no such stage; did you mean 'build'?"),
        (["--upstream", "checkout"], 2, "unknown upstream 'checkout'"),
        (["--arch", "gfx1"], 2, "unknown arch"),
    ],
)
def test_qualification_with_bad_option_is_refused(
    qualify: Run, arguments: list[str], code: int, complaint: str
) -> None:
    exit_code, _, err = qualify(*arguments)
    assert exit_code == code
    assert complaint in err


@pytest.mark.parametrize("kind", ["changed", "untracked", "staged", "deleted"])
def test_dirty_checkout_is_refused(qualify: Run, clone: Path, stages: Stages, kind: str) -> None:
    file = clone / ("new.txt" if kind in ("untracked", "staged") else "requirements.txt")
    if kind == "deleted":
        file.unlink()
    else:
        file.write_text("other")
    if kind == "staged":
        git(clone, "add", file.name)
    code, _, err = qualify()
    assert (code, stages.called) == (4, [])
    assert file.name in err


def test_no_clone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="git: "):
        stage_runs.read_checkout(tmp_path)


def test_commit_in_middle_is_refused(
    qualify: Run, waived: list[str], clone: Path, stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commit_and_run(*arguments: object) -> int:
        code = Stages.__call__(stages, *arguments)  # type: ignore[arg-type]
        git(clone, "commit", "-qm", "second", "--allow-empty")
        return code

    monkeypatch.setattr(commands, "run", functools.partial(stage_runs.run, execute=commit_and_run))
    assert qualify(*waived)[0] == 4


def test_expired_ledger_is_refused(qualify: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    last = max(entry.expires for entry in read_ledger().entries)
    monkeypatch.setattr(commands, "_today", lambda: last.replace(year=last.year + 1))
    code, _, err = qualify()
    assert (code, "expired on" in err) == (8, True)


def test_waiver_that_no_one_needs_is_reported(qualify: Run, tmp_path: Path) -> None:
    other = next(entry.name for entry in read_ledger().entries if entry.name != "table-read-past-end")
    file = tmp_path / "two.yaml"
    row = WAIVERS.split("table-read-past-end:")[1]
    file.write_text(f"{WAIVERS}  {other}:{row}")
    code, out, _ = qualify("--waivers", str(file))
    assert (code, f"a needless waiver: {other}" in out) == (0, True)


def test_upstream_that_was_changed_is_refused(tmp_path: Path) -> None:
    package = upstreams()["aiter"]
    folder = package_folder(package, tmp_path)
    folder.mkdir(parents=True)
    with pytest.raises(SetupError, match=r"is not as published[^\n]*\n  files\.sha256: No such file"):
        stage_runs.demand_undamaged(package, tmp_path)
    (folder / "a.hpp").write_text("as published")
    listed = subprocess.run(["sha256sum", "a.hpp"], cwd=folder, check=True, capture_output=True, text=True).stdout
    (folder / "files.sha256").write_text(listed)
    stage_runs.demand_undamaged(package, tmp_path)
    (folder / "a.hpp").write_text("changed")
    with pytest.raises(SetupError, match=r"upstream aiter .* is not as published.*\n  a\.hpp: changed"):
        stage_runs.demand_undamaged(package, tmp_path)


def test_stages_of_several_runs_are_one_release(qualify: Run, waived: list[str], stages: Stages) -> None:
    code, out, _ = qualify("--only", "build", "--only", "dispatch")
    assert (code, stages.called) == (0, ["gfx950/build", "gfx950/dispatch"])
    assert "no bundle" in out
    assert qualify(*waived)[0] == 0
    assert stages.called.count("gfx950/dispatch") == 1


def test_commands_of_page_exist() -> None:
    lines = (ROOT / "docs/howto/release.md").read_text().splitlines()
    shown = [line.removeprefix("$ ").split() for line in lines if line.startswith(("$ nox", "$ ckpm"))]
    qualified = [command[command.index("--") + 1 :] for command in shown if "release-qualification" in command]
    verified = [command[1:] for command in shown if command[0] == "ckpm"]
    assert (len(qualified), len(verified)) == (4, 5)
    for arguments in [*(["qualify", *arguments] for arguments in qualified), *verified]:
        assert parse(arguments)


@pytest.mark.parametrize("name", ["nothing", "nothing.tar"])
def test_verify_of_missing_bundle_is_refused(tmp_path: Path, name: str, run: Run) -> None:
    code, _, err = run("verify-bundle", str(tmp_path / name))
    assert (code, name in err) == (11, True)


def test_empty_ledger_has_no_defect_to_waive() -> None:
    assert "table-read-past-end" not in known_defects(Ledger(file=Path("empty")))

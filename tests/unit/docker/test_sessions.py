"""Sessions inside an image get the checkout, the caches, pip's settings, the caller's id, and a present GPU."""

from __future__ import annotations

import configparser
import os
from pathlib import Path

import pytest
from nox.sessions import _normalize_path

from ckpm.docker import running, sessions
from ckpm.docker.engines import ContainerRun, Engine, Mount
from ckpm.docker.images import image
from tests.unit.docker.fake_engine import FakeEngine
from tests.unit.shared import Run, git

TEST = image("debian-rocm-test")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CK_ROOT", "CKPM_FAILURES", "HTTPS_PROXY", *sessions._CERTIFICATES):
        monkeypatch.delenv(name, raising=False)


def plan(tmp_path: Path, **pip: str) -> ContainerRun:
    settings = {name.replace("_", "-"): value for name, value in pip.items()}
    return sessions.plan(
        TEST,
        "localhost/ckpm/debian-rocm-test:abc",
        ["build-gfx950", "--", "--tier", "full"],
        conf=tmp_path / "pip.conf",
        pip=settings,
        cache=tmp_path / "cache",
        root=tmp_path / "checkout",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["test-larg-kv"], "noxfile.py has no session test-larg-kv"),
        (["doctor", "lnt"], "noxfile.py has no session lnt"),
        (["doctor", "--options", "--tier 'full"], "no shell can read it: No closing quotation"),
    ],
)
def test_mistakes_are_reported_before_image_build(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    """The engine that stands in for buildah has no image, so any call of it would be the begin of a build."""
    fake = FakeEngine(tmp_path, "buildah", {})
    monkeypatch.setenv("PATH", str(fake.program.parent), prepend=os.pathsep)
    code, _, err = run("in-container", *arguments, "--engine", "buildah", "--work", tmp_path / "work")
    assert (code, message in err) == (2, True)
    assert fake.calls() == []


def test_real_sessions_are_accepted() -> None:
    sessions.demand_sessions(["build-gfx950", "test-large-kv", "docs"])


def targets(run: ContainerRun) -> dict[str, Mount]:
    return {str(mount.target): mount for mount in run.mounts}


def test_plan_mounts_checkout_and_cache_as_caller(tmp_path: Path) -> None:
    run = plan(tmp_path)
    for folder in (tmp_path / "checkout", tmp_path / "cache"):
        assert targets(run)[str(folder)] == Mount(source=folder, target=folder, writable=True, own=True)
    assert run.workdir == tmp_path / "checkout"
    assert run.user == f"{os.getuid()}:{os.getgid()}"
    assert run.environment["CKPM_CACHE"] == str(tmp_path / "cache")
    assert Path(run.environment["HOME"]).is_relative_to(tmp_path / "cache")
    assert run.command[:2] == ["sh", "docker/sessions.sh"]
    assert run.command[3:] == ["build-gfx950", "--", "--tier", "full"]


def test_plan_separates_environments_by_image(tmp_path: Path) -> None:
    run = plan(tmp_path)
    folder = targets(run)[run.command[2]].source
    assert folder.is_relative_to(tmp_path / "cache")
    assert folder.name == "debian-rocm-test-abc"


def test_environments_have_paths_that_nox_accepts(tmp_path: Path) -> None:
    """The longest path of sessions.sh for any cache folder, in nox's own check."""
    folder = plan(tmp_path / ("long-" * 30)).command[2]
    environments = f"{folder}/{'0' * 16}/environments"
    for name in ("environment", "docs"):
        assert _normalize_path(environments, name) == f"{environments}/{name}"


def test_plan_mounts_repository_of_work_tree(tmp_path: Path) -> None:
    """git reads the repository at the path that the work tree's .git names."""
    main = tmp_path / "main"
    git(tmp_path, "init", "-q", str(main))
    git(main, "commit", "-q", "--allow-empty", "-m", "x")
    assert str(main / ".git") not in targets(plan(tmp_path))
    git(main, "worktree", "add", "-q", "--detach", str(tmp_path / "checkout"))
    repository = git(tmp_path / "checkout", "rev-parse", "--path-format=absolute", "--git-common-dir")
    assert repository == str(main / ".git")
    assert targets(plan(tmp_path))[repository] == Mount(
        source=Path(repository), target=Path(repository), writable=True, own=True
    )


def test_plan_mounts_files_of_pip_settings_for_reading(tmp_path: Path) -> None:
    for name in ("wheels", "pypi/simple", "constraints.txt", "ca.pem"):
        (tmp_path / name).mkdir(parents=True)
    run = plan(
        tmp_path,
        find_links=f"{tmp_path}/wheels {tmp_path}/absent https://index.example/links",
        extra_index_url=f"https://index.example/simple {(tmp_path / 'pypi/simple').as_uri()}",
        constraint=f"{tmp_path}/constraints.txt",
        cert=f"{tmp_path}/ca.pem",
    )
    expected = [tmp_path / name for name in ("wheels", "pypi", "constraints.txt", "ca.pem")]
    for path in expected:
        mount = targets(run)[str(path)]
        assert (mount.source, mount.writable) == (path, False)
    assert len(run.mounts) == len(expected) + 4
    assert targets(run)[run.environment["PIP_CONFIG_FILE"]].source == tmp_path / "pip.conf"


def test_pip_conf_merges_settings_and_packages() -> None:
    text = sessions.pip_conf({"index-url": "https://a:b@index.example/simple", "find-links": "/w\n/x"}, "/opt/packages")
    read = configparser.ConfigParser(interpolation=None)
    read.read_string(text)
    assert read["global"]["index-url"] == "https://a:b@index.example/simple"
    assert read["global"]["find-links"].split() == ["/w", "/x", "/opt/packages"]
    assert "find-links" not in sessions.pip_conf({}, "")


def test_plan_passes_certificates_and_proxies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:1")
    monkeypatch.setenv("CKPM_ROCM", "0")  # against the image's own
    run = plan(tmp_path)
    assert targets(run)[str(bundle)].source == bundle
    assert run.environment["SSL_CERT_FILE"] == str(bundle)
    assert run.environment["HTTPS_PROXY"] == "http://proxy:1"
    assert run.environment["CKPM_ROCM"] == "0"


@pytest.mark.parametrize(
    "name",
    [
        *("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"),
        *("CKPM_V3", "CKPM_JOBS", "SOURCE_DATE_EPOCH"),
    ],
)
def test_plan_passes_choices_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The container sees every GPU of /dev/dri, so without the variable it would run on another one."""
    monkeypatch.delenv(name, raising=False)
    assert name not in plan(tmp_path).environment
    monkeypatch.setenv(name, "3")
    assert plan(tmp_path).environment[name] == "3"


def test_plan_mounts_checkout_of_ck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CK_ROOT", str(tmp_path))
    run = plan(tmp_path)
    assert targets(run)[str(tmp_path)].writable is False
    assert run.environment["CK_ROOT"] == str(tmp_path)


def test_plan_passes_record_of_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workflows also repeat a failure of a package index inside."""
    record = tmp_path / "failures"
    monkeypatch.setenv("CKPM_FAILURES", str(record))
    assert "CKPM_FAILURES" not in plan(tmp_path).environment
    record.touch()
    run = plan(tmp_path)
    assert run.environment["CKPM_FAILURES"] == str(record)
    assert targets(run)[str(record)] == Mount(source=record, target=record, writable=True, own=True)


def test_plan_passes_present_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without = plan(tmp_path)
    assert (without.devices, without.groups, without.shm_size) == ((), (), "")
    monkeypatch.setattr(sessions, "present", lambda devices: tuple(devices))
    monkeypatch.setattr(sessions, "device_groups", lambda devices: (44, 109))
    run = plan(tmp_path)
    assert (run.devices, run.groups, run.shm_size) == (("/dev/kfd", "/dev/dri"), (44, 109), "16g")


def test_run_returns_exit_code_and_removes_container(tmp_path: Path) -> None:
    fake = FakeEngine(tmp_path, "buildah", {"run": [(3, "", "")]})
    done = running.run(Engine("buildah", str(fake.program)), plan(tmp_path))
    assert done.returncode == 3
    assert [call[0] for call in fake.calls()] == ["from", "run", "rm"]
    assert fake.calls("rm") == [["rm", fake.calls("from")[0][3]]]

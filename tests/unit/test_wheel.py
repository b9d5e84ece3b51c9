"""The wheel contains all files, and its command works in a new environment.

The new environment borrows the packages of this one, so that nothing is downloaded.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Sequence
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ckpm import __version__
from ckpm.base.errors import UsageError
from ckpm.commands import COMMANDS, main
from programs import device_library
from tests.unit.shared import made_once
from tests.unit.sources import nodes

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT, DATA = PYPROJECT["project"], PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
PINS, TOOLS = ((ROOT / "requirements.in").read_text()).split("# sessions, tests and lint\n")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def build(folder: Path) -> None:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)

    (file,) = made_once(tmp_path_factory, "wheel", build).iterdir()
    return file


@pytest.fixture(scope="module")
def ckpm(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed command."""

    def install(environment: Path) -> None:
        make_environment(environment, str(wheel), borrowed=(ROOT / "emulator",))

    return made_once(tmp_path_factory, "environment", install) / "bin" / "ckpm"


def make_environment(environment: Path, *arguments: str, borrowed: Sequence[Path] = ()) -> None:
    """Install in a new environment, which borrows the packages of this one and ``borrowed`` folders."""
    venv.create(environment)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text("\n".join(map(str, (sysconfig.get_path("purelib"), *borrowed))))
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "install"]
    options = ["--quiet", "--no-deps", "--no-index", "--no-compile", "--no-build-isolation"]
    subprocess.run([*pip, *options, *arguments], check=True, capture_output=True, text=True)


def call(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in ``folder``, without variables that lead Python or git to the clone."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GIT_"))}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_wheel_contains_files_of_rooms(wheel: Path) -> None:
    listed = call(["git", "ls-files", "-zco", "--exclude-standard", "--", "ckpm", *DATA], ROOT)
    if listed.returncode:
        pytest.skip("no git repository, which lists the files of the project")
    present = [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    expected = {name if name.startswith("ckpm/") else f"ckpm/data/{name}" for name in present}
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert len(expected) > 400  # fewer in a wrong folder
    assert names == expected


def test_command_runs_in_new_environment(ckpm: Path, tmp_path: Path) -> None:
    version = call([str(ckpm), "--version"], tmp_path)
    assert (version.returncode, version.stdout) == (0, f"ckpm {__version__}\n"), version.stderr
    count = call([str(ckpm), "count"], tmp_path)
    assert count.returncode == 0, count.stderr
    assert count.stdout.split()[-3:] == [
        "total",
        "384",
        "384",
    ]  # docs/reference/matrix.md: all kernels of the default upstream


def test_accept_of_installed_ckpm_needs_baselines(ckpm: Path, tmp_path: Path) -> None:
    done = call([str(ckpm), "accept", "--reason", "mine"], tmp_path)
    assert (done.returncode, "--baselines FOLDER" in done.stderr) == (2, True), done.stderr
    done = call([str(ckpm), "accept", "--reason", "mine", "--baselines", "mine"], tmp_path)
    assert "no such manifest" in done.stderr  # the next check


def test_installed_ckpm_in_clone_is_refused(ckpm: Path, tmp_path: Path) -> None:
    for folder in (ROOT, ROOT / "docs" / "howto"):
        done = call([str(ckpm), "count"], folder)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert f"the clone {ROOT}" in done.stderr
        assert "python -m ckpm" in done.stderr
    assert call([str(ckpm), "count"], tmp_path).returncode == 0


@pytest.mark.parametrize(("files", "warnings"), [(("noxfile.py", "SConstruct", "ckpm/__main__.py"), 1), ((), 0)])
def test_import_below_another_clone_warns_once(tmp_path: Path, files: Sequence[str], warnings: int) -> None:
    (tmp_path / "examples").mkdir()
    (tmp_path / "ckpm").mkdir()
    for file in files:
        (tmp_path / file).touch()
    lines = "from ckpm import Pages, Registry\nfrom ckpm import OnDevice\nimport ckpm\nckpm.Pages\n"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", lines],
        cwd=tmp_path / "examples", env=environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stderr.count(f"the ckpm of {ROOT}, and the current folder is in the clone {tmp_path}") == warnings
    assert done.stderr.count(f"Set PYTHONPATH={tmp_path}, or ") == warnings
    assert bool(done.stderr) == bool(warnings)


def test_installed_ckpm_renders_images(ckpm: Path, tmp_path: Path) -> None:
    for options, message in ((["list"], "debian-rocm-test"), (["render"], "render: 5 Dockerfiles in build/docker")):
        done = call([str(ckpm), "images", *options], tmp_path)
        assert (done.returncode, message in done.stdout) == (0, True), done.stderr
    assert (tmp_path / "build/docker/rocm-7.2-test/Dockerfile").read_text().startswith("# rocm-7.2-test: rendered")
    for command in (["images", "build", "--update-locks"], ["in-container", "doctor"]):
        done = call([str(ckpm), *command], tmp_path)
        assert (done.returncode, "of a clone" in done.stderr or "a clone's" in done.stderr) == (2, True), done.stderr


def test_editable_installs_run_in_another_folder(tmp_path: Path) -> None:
    make_environment(tmp_path / "environment", "--editable", str(ROOT / "emulator"), "--editable", str(ROOT))
    programs = tmp_path / "environment" / "bin"
    version = call([str(programs / "ckpm"), "--version"], tmp_path)
    assert version.stdout.startswith(f"ckpm {__version__}"), version.stderr
    core = call([str(programs / "ckpm-emulator"), "core", "--help"], tmp_path)
    assert core.stdout.startswith("usage: ckpm-emulator core"), core.stderr
    code = "import ckpm, ckpm_emulator as e; print(ckpm.__file__, e.__file__)"
    done = call([str(programs / "python"), "-c", code], tmp_path)
    assert done.stdout == f"{ROOT / 'ckpm/__init__.py'} {ROOT / 'emulator/ckpm_emulator/__init__.py'}\n"


def test_mypy_sees_types_of_fmha_in_project_of_a_user(ckpm: Path, tmp_path: Path) -> None:
    calls = (
        "fmha(q, k, v, soft_cap=30.0, mask='window').o", "fmha(q, k, v, softcap=30.0)", "fmha(q, k, v, mask='windows')",
        "fhma(q, k, v)", "fmha(q, k, v, dtype='bfloat16')",
        "fmha_backward(q, q, k, v, q, q, dbias=True).dq", "fmha_backward(q, q, k, v, q, q, family='fwd')",
    )  # fmt: skip
    lines = ["import ckpm", "q = k = v = [0.0]", *(f"ckpm.{call}" for call in calls), "reveal_type(ckpm.fmha(q, k, v))"]
    (tmp_path / "project.py").write_text("\n".join(lines))
    python = ["--python-executable", str(ckpm.with_name("python")), "--cache-dir", str(tmp_path / "cache")]
    done = call([sys.executable, "-m", "mypy", "--strict", *python, "project.py"], tmp_path)
    complaints = [line for line in done.stdout.splitlines() if "defined in" not in line]
    assert complaints[0].startswith('project.py:4: error: Unexpected keyword argument "softcap" for "fmha"'), (
        done.stdout
    )
    assert complaints[1].startswith('project.py:5: error: Argument "mask" to "fmha" has incompatible type "Literal[')
    assert complaints[2].startswith('project.py:6: error: Module has no attribute "fhma"')
    assert complaints[3].startswith('project.py:7: error: Argument "dtype" to "fmha" has incompatible type "Literal[')
    assert complaints[4].startswith('project.py:9: error: Unexpected keyword argument "family" for "fmha_backward"')
    assert complaints[5] == 'project.py:10: note: Revealed type is "ckpm.attention.call.Attention"'


def test_wheel_has_no_generic_package_names(ckpm: Path, tmp_path: Path) -> None:
    names = ("matrix", "kernels", "reports", "emulator", "base", "suites", "docker")
    code = f"import importlib.util as u; print([n for n in {names} if u.find_spec(n)])"
    done = call([str(ckpm.with_name("python")), "-c", code], tmp_path)
    assert done.stdout == "[]\n", done.stderr


def test_version_in_clone_has_revision() -> None:
    head = call(["git", "rev-parse", "--short", "HEAD"], ROOT)
    if head.returncode:
        pytest.skip("no git repository")
    done = call([sys.executable, "-m", "ckpm", "--version"], ROOT)
    assert done.stdout.startswith(f"ckpm {__version__} ({head.stdout.strip()}"), done.stderr


def test_help_names_every_command() -> None:
    done = call([sys.executable, "-m", "ckpm", "--help"], ROOT)
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.endswith(":")] == ["use:", "develop:", "ship:"]  # the tags of noxfile.py
    rows = [line[2:20].rstrip() for line in lines if line.startswith("  ")]
    assert sorted(rows[: len(COMMANDS)]) == sorted(COMMANDS)


def test_call_without_command_prints_help_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == UsageError.exit_code
    assert "\nuse:\n  build " in capsys.readouterr().out


def test_imports_are_dependencies() -> None:
    texts = [file.read_text() for file in (ROOT / "ckpm").rglob("*.py")]
    imported = set()
    for node in (node for text in texts for node in nodes(text)):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imported.add(node.module.partition(".")[0])
    foreign = (
        imported - set(sys.stdlib_module_names) - {"ckpm", "ckpm_emulator", "tests", "amdsmi"}
    )  # amdsmi: ROCm's own
    optional = [(ROOT / f"requirements-{name}.in").read_text() for name in ("cluster", "torch", "triton")]
    extra = {name.replace("-", "_") for text in optional for name in requirements_of(text)}
    distributions = packages_distributions()
    names = {canonicalize_name(name) for module in foreign - extra - {"dask"} for name in distributions[module]}
    assert names <= {canonicalize_name(name) for name in requirements_of("\n".join(PROJECT["dependencies"]))}


def test_device_library_is_that_of_pinned_triton() -> None:
    assert f"triton=={device_library.VERSION}\n" in (ROOT / "requirements-triton.in").read_text()
    assert f"--hash=sha256:{device_library.SHA256}" in (ROOT / "requirements-triton.txt").read_text()


def requirements_of(text: str) -> dict[str, Requirement]:
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return {
        requirement.name: requirement
        for requirement in map(Requirement, (line for line in lines if line[:1] not in ("", "-")))
    }


def test_dependencies_have_pins_as_lower_bounds() -> None:
    wanted = requirements_of("\n".join(PROJECT["dependencies"]))
    emulator = tomllib.loads((ROOT / "emulator/pyproject.toml").read_text())["project"]
    assert wanted.pop("ckpm-emulator").specifier == f"=={emulator['version']}"
    assert wanted.pop("pip").specifier == ""  # the environment's own
    pins = requirements_of(PINS)
    assert wanted.keys() == pins.keys()
    for name, pin in pins.items():
        (version,) = (part.version for part in pin.specifier)
        if name in wanted:
            lowest = {part.version for part in wanted[name].specifier if part.operator in (">=", "==")}
            assert (name, lowest, version in wanted[name].specifier) == (name, {version}, True)
    assert not wanted.keys() & requirements_of(TOOLS).keys()

"""What takes the place of GitHub's actions on this machine: a clone, folders for caches and artifacts, or nothing.

Each is a function of the step's inputs and the job; it returns a line that says what was done instead, and outputs.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from workflows.errors import WorkflowError

Inputs = Mapping[str, str]
Outcome = tuple[str, dict[str, str]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job runs: its clone, its home folder, and what all jobs of the run share."""

    clone: Path
    home: Path
    shared: Path
    repository: Path
    commit: str


def checkout(inputs: Inputs, place: Place) -> Outcome:
    depth = inputs.get("fetch-depth", "1")
    words = ["git", "clone", "--quiet", "--no-local", *([] if depth == "0" else ["--depth", depth])]
    # a clone by depth takes a branch and not a commit: the runner gave the commit this one
    words += ["--branch", "commit", f"file://{place.shared / 'repository'}", str(place.clone)]
    subprocess.run(words, check=True)
    return f"cloned {place.commit[:12]}", {}


def setup_python(inputs: Inputs, place: Place) -> Outcome:
    subprocess.run([sys.executable, "-m", "venv", str(place.home / "python")], check=True)
    have = f"{sys.version_info.major}.{sys.version_info.minor}"
    return f"a new environment of this machine's Python {have} instead of {inputs['python-version']}", {}


def restore_cache(inputs: Inputs, place: Place) -> Outcome:
    wanted = [inputs["key"], *inputs.get("restore-keys", "").split()]
    stored = sorted((place.shared / "caches").glob("*/key"), key=lambda file: file.stat().st_mtime, reverse=True)
    for prefix in wanted:
        for key in stored:
            if key.read_text().startswith(prefix):
                shutil.copytree(key.parent / "home", place.home, dirs_exist_ok=True, symlinks=True)
                exact = key.read_text() == inputs["key"]
                return f"restored {key.read_text()}", {
                    "cache-hit": "true" if exact else "false",
                    "cache-primary-key": inputs["key"],
                }
    return f"nothing stored as {inputs['key']}", {"cache-hit": "false", "cache-primary-key": inputs["key"]}


def save_cache(inputs: Inputs, place: Place) -> Outcome:
    folder = place.shared / "caches" / hashlib.sha256(inputs["key"].encode()).hexdigest()[:16]
    if folder.exists():
        return "stored already", {}
    for path in inputs["path"].split():
        source = Path(path.replace("~", str(place.home), 1))
        if source.is_dir():
            shutil.copytree(source, folder / "home" / source.relative_to(place.home), symlinks=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "home").mkdir(exist_ok=True)
    (folder / "key").write_text(inputs["key"])
    return f"stored as {inputs['key']}", {}


def upload_artifact(inputs: Inputs, place: Place) -> Outcome:
    """Paths are kept below the last folder before the first wildcard, as the action does."""
    patterns = inputs["path"].split()
    matching = {file for one in patterns if one[0] != "!" for file in place.clone.glob(one)}
    matching -= {file for one in patterns if one[0] == "!" for file in place.clone.glob(one[1:])}
    if not matching and inputs.get("if-no-files-found") == "error":
        raise WorkflowError(f"no file fits {', '.join(patterns)}")
    start = Path(patterns[0].partition("*")[0] + "x").parent
    target = place.shared / "artifacts" / inputs["name"]
    for source in sorted(matching):
        file = target / source.relative_to(place.clone / start)
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, file)
    return f"{len(matching)} files as {inputs['name']}", {}


def download_artifact(inputs: Inputs, place: Place) -> Outcome:
    """One artifact by name goes into the path itself, several into folders of their names."""
    target = place.clone / inputs["path"]
    if name := inputs.get("name"):
        shutil.copytree(place.shared / "artifacts" / name, target, dirs_exist_ok=True)
        return name, {}
    folders = [folder for folder in (place.shared / "artifacts").glob(inputs.get("pattern", "*")) if folder.is_dir()]
    for folder in folders:
        shutil.copytree(folder, target / folder.name, dirs_exist_ok=True)
    return f"{len(folders)} artifacts", {}


ACTIONS: Mapping[str, Callable[[Inputs, Place], Outcome]] = {
    "actions/checkout": checkout,
    "actions/setup-python": setup_python,
    "actions/cache/restore": restore_cache,
    "actions/cache/save": save_cache,
    "actions/upload-artifact": upload_artifact,
    "actions/download-artifact": download_artifact,
}
# Actions that have no sense here, and why they are left out.
SKIPPED: Mapping[str, str] = {
    "actions/attest-build-provenance": "only GitHub can sign what a workflow of its own made",
}


def perform(uses: str, inputs: Inputs, place: Place) -> Outcome:
    """Do what stands for an action. Raises WorkflowError: nothing does, or it fails."""
    name = uses.partition("@")[0]
    if name in SKIPPED:
        return f"left out: {SKIPPED[name]}", {}
    if name not in ACTIONS:
        raise WorkflowError(f"{name}: nothing on this machine stands for this action.")
    try:
        return ACTIONS[name](inputs, place)
    except (OSError, subprocess.CalledProcessError) as error:
        raise WorkflowError(f"{name}: {error}") from error

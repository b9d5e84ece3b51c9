"""`ckpm plan` holds every kernel that a change affects: changes planted in tables, templates and headers.

Which kernels a change affects is computed without the planner: tests/gate/rendered.py renders all of them before and
after. Every missed kernel or library is listed, and the test demands that there is none.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ckpm.base.errors import CkPrefillError
from ckpm.matrix.dialects import read_dialect

ROOT = Path(__file__).parents[2]
TABLES = sorted((ROOT / "matrix" / "dialects").glob("*/*.yaml"))
TEMPLATES = sorted((ROOT / "kernels" / "templates").glob("*.j2"))
WHOLE = [
    *(ROOT / "kernels" / "include").glob("*.h"),
    *(ROOT / "kernels" / "include_fwd").glob("*.h"),
    *(ROOT / "kernels" / "include_bwd").glob("*.h"),
    *(ROOT / "kernels" / "hip").rglob("*.h"),
    ROOT / "kernels" / "ckpm.map",
    ROOT / "kernels" / "spellings.yaml",
]
RENDERED = ["batch_prefill", "fwd_splitkv_combine", "fwd_appendkv", "fwd_v3"]  # smoke libraries cover the others
MUTANTS_OF_A_TABLE = 2


class Checkout:
    """A clone with its own commit, in which one file at a time is changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(folder)], check=True)
        for name in ("ckpm", "matrix", "kernels", "tests/gate"):  # with uncommitted changes
            subprocess.run(["cp", "-a", f"{ROOT / name}/.", str(folder / name)], check=True)
        self.git("add", "-A")
        self.git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "as it is", "--allow-empty")
        self._rendered: dict[tuple[str, ...], dict[str, Any]] = {}

    def git(self, *arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=self.folder, check=True)

    def render(self, families: list[str]) -> dict[str, Any] | None:
        """None if the tables can't be read."""
        script = [sys.executable, "-I", str(ROOT / "tests" / "gate" / "rendered.py"), str(self.folder), *families]
        done = subprocess.run(script, capture_output=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def render_commit(self, families: list[str]) -> dict[str, Any]:
        """The outputs of the commit."""
        if tuple(families) not in self._rendered:
            outputs = self.render(families)
            assert outputs is not None
            self._rendered[tuple(families)] = outputs
        return self._rendered[tuple(families)]

    def plan(self) -> tuple[int, dict[str, Any]]:
        command = [sys.executable, "-m", "ckpm", "plan", "--since", "HEAD", "--json"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, check=False)
        return done.returncode, json.loads(done.stdout) if done.returncode == 0 else {}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    return Checkout(tmp_path_factory.mktemp("planned") / "clone")


def mutants(text: str) -> Iterator[str]:
    """Changes of a text: a list shortened, two items swapped, a number doubled, or a line removed."""
    lists = [match for match in re.finditer(r"\[([^\[\]{}]+,[^\[\]{}]+)\]", text) if "#" not in match[0]]
    for match in lists:
        items = match[1].split(",")
        for changed in (items[:-1], [items[1], items[0], *items[2:]]):
            yield text[: match.start(1)] + ",".join(changed) + text[match.end(1) :]
    for match in re.finditer(r"(?<=[ \[:,])(\d+)(?=[,\]}\n])", text):
        yield text[: match.start()] + str(2 * int(match[0]) + 1) + text[match.end() :]
    lines = text.splitlines(keepends=True)
    for at, line in enumerate(lines):
        if re.match(r"\s*- ", line):
            yield "".join(lines[:at] + lines[at + 1 :])


def sample(texts: list[str], count: int) -> list[str]:
    """Pick ``count`` texts at equal distances."""
    return texts[:: max(1, len(texts) // count)][:count]


def readable(table: Path, text: str, folder: Path) -> bool:
    """True if a dialect can be read with this text as its table."""
    shutil.copytree(table.parents[1], folder, dirs_exist_ok=True)
    path = folder / table.parent.name / table.name
    path.write_text(text)
    try:
        tables = read_dialect(path.parent)
        return any(family.name for family in tables.all_families() if table.stem in (family.name, "dialect"))
    except CkPrefillError:
        return False
    finally:
        path.write_text(table.read_text())


def compare_plan(checkout: Checkout, families: list[str]) -> tuple[list[str], int]:
    """Affected kernels and libraries that the plan lacks, and the number of affected ones."""
    before = checkout.render_commit(families)
    with ThreadPoolExecutor() as pool:
        rendering = pool.submit(checkout.render, families)
        code, plan = checkout.plan()
        after = rendering.result()
    if after is None:  # the tables can't be read, or a library lacks a kernel that another one needs: its build fails
        assert code != 0 or plan["builds"] + plan["runs"]
        return [], 0
    assert code == 0
    touched = {f"{row['dialect']} {row['family']}": row["names"] for row in plan["kernels"]}
    false_negatives, affected = [], 0
    for family in {**before["kernels"], **after["kernels"]}:
        old, new = before["kernels"].get(family, {}), after["kernels"].get(family, {})
        for name in {name for name in {**old, **new} if old.get(name) != new.get(name)}:
            affected += 1
            if family not in touched or (touched[family] is not None and name not in touched[family]):
                false_negatives.append(f"{family} {name}")
    built = {f"{job['upstream']} {job['library']}" for job in plan["builds"] + plan["runs"] if job["arch"] == "gfx950"}
    for library, digest in after["libraries"].items():
        if before["libraries"][library] != digest:
            affected += 1
            false_negatives += [] if library in built else [library]
    return false_negatives, affected


def judge(checkout: Checkout, file: Path, text: str, families: list[str]) -> int:
    """Plant a change, check that the plan covers it, and undo it. Return the number of affected kernels."""
    path = checkout.folder / file.relative_to(ROOT)
    original = path.read_text()
    checkout.render_commit(families)  # before the change
    path.write_text(text)
    try:
        lost, affected = compare_plan(checkout, families)
        print(f"{file.relative_to(ROOT)}: {affected} affected, {len(lost)} missed")
        assert lost == []
    finally:
        path.write_text(original)
    return affected


@pytest.mark.parametrize("table", TABLES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_plan_covers_change_of_dialect(checkout: Checkout, table: Path, tmp_path: Path) -> None:
    families = ["batch_prefill"] if table.stem == "dialect" else [table.stem]
    texts = [text for text in dict.fromkeys(mutants(table.read_text())) if text != table.read_text()]
    for text in sample([text for text in texts if readable(table, text, tmp_path)], MUTANTS_OF_A_TABLE):
        judge(checkout, table, text, families)


@pytest.mark.parametrize("name", ["archs", "selections", "defects", "upstreams"])
def test_plan_covers_change_of_other_table(checkout: Checkout, name: str) -> None:
    table = ROOT / "matrix" / f"{name}.yaml"
    original = table.read_text()
    edits = [*sample(list(mutants(original)), 3), re.sub(r"\b16\b|\b64\b|'no'", "1", original, count=1)]
    for text in (text for text in edits if text != original):
        judge(checkout, table, text, ["batch_prefill"])


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda file: file.name)
def test_plan_covers_change_of_template(checkout: Checkout, template: Path) -> None:
    text = template.read_text()
    if "{% extends" in text or "{% macro" in text:  # only its blocks or macros are rendered
        text = re.sub(r"({% (?:block|macro) [^%]+ %})", "\\1\n// changed\n", text, count=1)
    else:
        text += "\n// changed\n"
    assert judge(checkout, template, text, RENDERED) > 0


@pytest.mark.parametrize("file", WHOLE, ids=lambda file: f"{file.parent.name}-{file.name}")
def test_plan_covers_change_of_header_or_spelling(checkout: Checkout, file: Path) -> None:
    comment = "# changed\n" if file.suffix in (".yaml", ".map") else "// changed\n"
    text = file.read_text() + comment
    if file.suffix == ".yaml":
        text = file.read_text().replace("ck_tile::BlockAttentionBiasEnum::ALIBI", "changed")
    assert judge(checkout, file, text, RENDERED) > 0


@pytest.mark.parametrize(
    ("toolchain", "flag"), [("base", '"-std=c++17",'), ("embedded", '"--target=x86_64-unknown-linux-gnu",')]
)
def test_plan_covers_change_of_toolchain(checkout: Checkout, toolchain: str, flag: str) -> None:
    file = ROOT / "ckpm" / "kernels" / "code" / "toolchains" / f"{toolchain}.py"
    assert flag in file.read_text()
    assert judge(checkout, file, file.read_text().replace(flag, f'{flag} "-Dchanged",'), ["fwd_v3"]) > 0


def test_plan_covers_change_of_rule(checkout: Checkout) -> None:
    file = ROOT / "ckpm" / "matrix" / "rules.py"
    text = file.read_text().replace("return ", "return not ", 1)
    judge(checkout, file, text, ["batch_prefill"])

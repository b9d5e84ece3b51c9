"""The examples: one for each feature of pull request 5260's list, short, and shown on their page."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/examples.md").read_text(encoding="utf-8")
SHARED = {"__init__", "__main__", "kernels", "paging", "results"}
FEATURES = (
    *("fwd", "split_kv", "masks", "bias", "dropout", "gqa", "backward", "append_kv", "batch_prefill", "fp8"),
    *("soft_cap", "sinks", "sweep", "large_kv", "jit", "registry", "cpp"),
)
FILES = sorted(path for path in (ROOT / "examples").iterdir() if path.suffix in (".py", ".cpp"))


@pytest.mark.parametrize("feature", FEATURES)
def test_feature_has_example_on_page(feature: str) -> None:
    assert (ROOT / f"examples/{feature}.py").is_file()
    assert f"../../examples/{feature}.py" in PAGE
    assert f"$ python -m examples.{feature}\n" in PAGE


def test_every_example_has_feature() -> None:
    shown = {path.stem for path in FILES if path.suffix == ".py"} - SHARED
    assert shown == {*FEATURES, "paged_prefill", "pytorch"}  # these two are on other pages


@pytest.mark.parametrize("path", [path for path in FILES if path.stem not in SHARED], ids=lambda path: path.name)
def test_example_has_at_most_60_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 60

"""reproduce must notice any byte that differs, and any file that one build lacks."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from kernels import build_command, reproduce
from kernels.build import Request


def test_differences_name_the_artifact() -> None:
    first = {"a.o": "1" * 64, "b.o": "2" * 64, "only": "3" * 64}
    second = {"a.o": "1" * 64, "b.o": "4" * 64, "new": "5" * 64}
    assert reproduce.differences(first, second) == [
        "b.o: 2222222222222222 in the first build, 4444444444444444 in the second",
        "new: only in the second build",
        "only: only in the first build",
    ]
    assert reproduce.differences(first, dict(first)) == []


@pytest.mark.parametrize("leak", ["", "path", "count"])
def test_a_leaking_path_or_counter_is_found(
    monkeypatch: pytest.MonkeyPatch, request_for: object, stub_toolchain: object, leak: str
) -> None:
    builds: list[Path] = []

    def fake(request: Request, *, jobs: int, console: Console) -> None:
        builds.append(request.work)
        assert request.object_cache is None
        place = request.work / request.folder / "obj"
        place.mkdir(parents=True)
        text = {"": "same", "path": str(request.work), "count": str(len(builds))}[leak]
        (place / "unit.o").write_text(text)
        (place.parent / "compile_commands.json").write_text(str(request.work))  # speaks of the machine: not compared

    monkeypatch.setattr(build_command, "run", fake)
    request = request_for(stub_toolchain())  # type: ignore[operator]
    count, lines = reproduce.build_twice(request, 1, Console(quiet=True))
    assert count == 1
    assert len(lines) == (1 if leak else 0)
    assert len({len(work.parts) for work in builds}) == 2  # of different depth

"""The content key names everything that decides about a library: whatever of it is changed, the key is another.

A key that holds the kernel's name alone, as upstream's does, would pass none of these but the first.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest

from ckpm.attention.jit import entries
from ckpm.kernels.families.family import INCLUDE
from ckpm.kernels.library import request as build_request
from ckpm.kernels.library.request import BuildRequest
from tests.unit.attention.jit_requests import make_request


def key_of(request: BuildRequest | None = None) -> str:
    default, keys = make_request()
    request = request or default
    return entries.content_key(request, entries.texts(request, keys))


def test_same_request_in_another_folder_has_same_key() -> None:
    request, _ = make_request()
    moved = dataclasses.replace(request, work=Path("/elsewhere"), object_cache=None)
    assert key_of(moved) == key_of() == key_of()


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("selection", {"archs": ("gfx942",)}),
        ("toolchain", {"flags": ("-O3", "-DTWO")}),
        ("toolchain", {"flags": ("-DONE", "-O3")}),
        ("toolchain", {"link_flags": ("-static",)}),
        ("toolchain", {"identity": "a compiler 1.1"}),
        ("tree", {"identity": "an edited tree"}),  # another package, or a checkout in which a header was edited
    ],
)
def test_another_compilation_has_another_key(part: str, changes: dict[str, Any]) -> None:
    request, _ = make_request()
    changed = dataclasses.replace(getattr(request, part), **changes)
    assert key_of(dataclasses.replace(request, **{part: changed})) != key_of()


def test_another_text_of_each_file_has_another_key() -> None:
    request, keys = make_request()
    rendered = entries.texts(request, keys)
    assert {"dispatch.hip", "harness.hip"} < set(rendered)
    for file in rendered:
        edited = {**rendered, file: rendered[file] + " "}
        assert entries.content_key(request, edited) != entries.content_key(request, rendered), file


def test_text_that_moves_to_another_file_has_another_key() -> None:
    request, _ = make_request()
    texts = [{"a": "x", "b": "y"}, {"a": "xb", "y": ""}, {"a": "y", "b": "x"}]
    assert len({entries.content_key(request, files) for files in texts}) == len(texts)


def test_another_header_of_ours_has_another_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request, keys = make_request()
    copy = tmp_path / "include"
    shutil.copytree(INCLUDE, copy)
    monkeypatch.setattr(BuildRequest, "headers", property(lambda self: (copy,)))
    before = entries.content_key(request, entries.texts(request, keys))
    with (copy / "ckpm.h").open("a") as header:
        header.write("\n")
    assert entries.content_key(request, entries.texts(request, keys)) != before


def test_another_list_of_exported_names_has_another_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = key_of()
    script = tmp_path / "ckpm.map"
    script.write_text(build_request.VERSION_SCRIPT.read_text() + " ")
    monkeypatch.setattr(entries, "VERSION_SCRIPT", script)
    assert key_of() != before

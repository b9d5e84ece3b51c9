"""No object is kept, in the build or in the shared cache, if a header changes while compilers run."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpm.base.errors import CompileError
from ckpm.kernels.code.toolchains import Toolchain
from ckpm.kernels.library import command as build_command
from ckpm.kernels.library.request import LIBRARY, Request
from ckpm.kernels.upstream import headers
from ckpm.kernels.upstream.headers import states

Make = Callable[..., Request]
Stub = Callable[..., Toolchain]
pytestmark = pytest.mark.usefixtures("copied_manifest")


def with_header(request: Request) -> tuple[Request, Path]:
    header = request.tree.root / "core.hpp"
    header.write_text("// core\n")
    return dataclasses.replace(request, tree=dataclasses.replace(request.tree, headers=states([header]))), header


def edit_header(toolchain: Toolchain, header: Path) -> Toolchain:
    """The compiler changes a header, as somebody who edits it while it runs."""
    script = Path(toolchain.compiler[0])
    first, rest = script.read_text().split("\n", 1)
    script.write_text(f"{first}\necho '// edited' >> {header}\n{rest}")
    return toolchain


def objects(request: Request) -> list[Path]:
    assert request.object_cache
    built, cached = (request.work / request.folder / "obj").glob("*.o"), request.object_cache.glob("*/*")
    return [*built, *cached]


def test_nothing_is_kept(stub_toolchain: Stub, request_for: Make) -> None:
    request, header = with_header(request_for(stub_toolchain(), where=("key.logits", "key.lse")))
    edit_header(request.toolchain, header)
    with pytest.raises(CompileError, match=rf"{header}: this header changed while the build ran.*Run the build again"):
        build_command.run(request, jobs=1)
    assert objects(request) == []
    assert not (request.work / request.folder / LIBRARY).exists()


def test_tree_at_rest_is_built(stub_toolchain: Stub, request_for: Make) -> None:
    request, _ = with_header(request_for(stub_toolchain(), where=("key.logits", "key.lse")))
    tally = build_command.run(request, jobs=2)
    assert tally.compiled > 1
    assert len(objects(request)) > tally.compiled


def same_size_and_time(header: Path) -> None:
    before = header.stat()
    header.write_text("// CORE\n")
    os.utime(header, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    "change",
    [
        same_size_and_time,
        Path.unlink,
        lambda header: os.utime(header, (10**9, 10**9)),
        lambda header: header.write_text("// core\n// edited\n"),
    ],
    ids=["same size and time", "deleted", "touched", "longer"],
)
def test_whatever_became_of_header_is_change(tmp_path: Path, change: Callable[[Path], None]) -> None:
    header = tmp_path / "core.hpp"
    header.write_text("// core\n")
    headers.write(tmp_path, states([header]))
    assert headers.first_changed(tmp_path) == ""
    change(header)
    assert headers.first_changed(tmp_path) == str(header)

"""A build heals: what was damaged, or left by a build that was killed, is found and made again.

No object is kept, in the build or in the shared cache, if a header changes while compilers run.

The stub compiler copies the source to the object, so that a sound object is known without any of our code.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpm.base.errors import CompileError, OutputError
from ckpm.kernels.code.toolchains import Toolchain
from ckpm.kernels.library import building
from ckpm.kernels.library.progress import Tally
from ckpm.kernels.library.request import LIBRARY, BuildRequest, prepare
from ckpm.kernels.upstream import headers
from ckpm.kernels.upstream.headers import states
from tests.unit.shared import capture_logs

Make = Callable[..., BuildRequest]
Stub = Callable[..., Toolchain]
FEW = ("key.logits", "key.lse")
pytestmark = pytest.mark.usefixtures("copied_manifest")


def build(request: BuildRequest) -> tuple[Tally, str]:
    return capture_logs(lambda: building.run(request, jobs=2))


def is_sound(request: BuildRequest) -> bool:
    folder = request.work / request.folder
    sources = list((folder / "src").glob("*.hip"))
    return (
        bool(sources)
        and all((folder / "obj" / f"{file.stem}.o").read_bytes() == file.read_bytes() for file in sources)
        and (folder / LIBRARY).read_text() == "library\n"
        and (folder / "manifest.json").read_bytes() == (folder / "plan.json").read_bytes()
    )


def scribble(file: Path) -> None:
    """Other bytes, same size, same time of writing."""
    before = file.stat()
    file.write_bytes(b"?" * before.st_size)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def truncate(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.truncate(3)


@pytest.mark.parametrize(
    ("name", "damage", "cached", "done"),
    [
        (LIBRARY, scribble, True, "library from the cache"),
        ("manifest.json", scribble, True, "manifest written"),
        ("obj/dispatch.o", truncate, True, "0 compiled (0 kernels), 1 from the cache, 5 unchanged"),
        ("obj/dispatch.o", truncate, False, "1 compiled (0 kernels), 0 from the cache, 5 unchanged"),
    ],
)
def test_damaged_file_is_made_again(
    finished_build: Make, name: str, damage: Callable[[Path], None], cached: bool, done: str
) -> None:
    request = finished_build(cached=cached)
    assert is_sound(request)
    damage(request.work / request.folder / name)
    tally, text = build(request)
    assert is_sound(request)
    assert f"{request.folder}/{name} is damaged: it is deleted and made again" in text
    assert tally.summary() == done


def test_damaged_entries_of_cache_are_replaced(finished_build: Make, request_for: Make) -> None:
    first = finished_build()
    second, third = (request_for(first.toolchain, name, where=FEW) for name in ("second", "third"))
    entries = {file.read_bytes(): file for file in (first.work.parent / "objects").glob("*/*")}
    sources = first.work / first.folder / "src"
    truncate(entries[(sources / "dispatch.hip").read_bytes()])
    undone = entries[(sources / "harness.hip").read_bytes()]
    undone.with_name(f"{undone.name}.sha256").unlink()
    tally, output = build(second)
    assert is_sound(second)
    assert tally.compiled == 2
    assert output.count("its copy in the object cache, is damaged") == 1
    assert build(third)[0].compiled == 0


def dead_process() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_next_build_clears_leftovers_of_killed(finished_build: Make) -> None:
    request = finished_build()
    folder = request.work / request.folder
    left = [folder / "tmp/unit-1234.hipfb", folder / "obj/dispatch-77.o.tmp", folder / f"src/.a.hip.{dead_process()}.1"]
    kept = [folder / f".results.json.{os.getpid()}.1", folder / f"results.json.{dead_process()}.1"]  # living, no draft
    for file in (*left, *kept):
        file.write_text("half")
    building.run(request, jobs=2)
    assert [file for file in (*left, *kept) if file.exists()] == kept


def test_objects_of_killed_build_do_not_serve_another_selection(finished_build: Make, request_for: Make) -> None:
    first = finished_build(cached=False)
    other = request_for(first.toolchain, cached=False, where=("key.logits", "key.lse", "key.dropout"))
    memory = first.work / first.folder / ".sconsign.signed"
    before = memory.read_bytes()
    build(other)
    memory.write_bytes(before)  # SCons writes it at its end: a killed one leaves the objects and not this
    build(first)
    assert is_sound(first)


def test_another_plan_deletes_library_before_compiling(finished_build: Make, request_for: Make) -> None:
    request = finished_build()
    library = request.work / request.folder / LIBRARY
    prepare(request)
    assert library.exists()
    prepare(request_for(request.toolchain, where=("key.logits",)))
    assert not library.exists()
    assert not (library.parent / "manifest.json").exists()


def test_compilers_put_temporary_files_into_output_folder(stub_toolchain: Stub, request_for: Make) -> None:
    request = request_for(stub_toolchain(), where=FEW)
    script = Path(request.toolchain.compiler[0])
    script.write_text(script.read_text() + 'mktemp "$TMPDIR/crash.XXXXXX"\n')
    building.run(request, jobs=2)
    assert list((request.work / request.folder / "tmp").glob("crash.*"))
    building.run(request, jobs=2)
    assert not list((request.work / request.folder / "tmp").iterdir())


def with_header(request: BuildRequest) -> tuple[BuildRequest, Path]:
    header = request.tree.root / "core.hpp"
    header.write_text("// core\n")
    return dataclasses.replace(request, tree=dataclasses.replace(request.tree, headers=states([header]))), header


def edit_header(toolchain: Toolchain, header: Path) -> Toolchain:
    """The compiler changes a header, as somebody who edits it while it runs."""
    script = Path(toolchain.compiler[0])
    first, rest = script.read_text().split("\n", 1)
    script.write_text(f"{first}\necho '// edited' >> {header}\n{rest}")
    return toolchain


def objects(request: BuildRequest) -> list[Path]:
    assert request.object_cache
    built, cached = (request.work / request.folder / "obj").glob("*.o"), request.object_cache.glob("*/*")
    return [*built, *cached]


def test_changed_header_leaves_no_object(stub_toolchain: Stub, request_for: Make) -> None:
    request, header = with_header(request_for(stub_toolchain(), where=FEW))
    edit_header(request.toolchain, header)
    with pytest.raises(CompileError, match=rf"{header}: this header changed while the build ran.*Run the build again"):
        building.run(request, jobs=1)
    assert objects(request) == []
    assert not (request.work / request.folder / LIBRARY).exists()


def test_unchanged_headers_leave_objects(stub_toolchain: Stub, request_for: Make) -> None:
    request, _ = with_header(request_for(stub_toolchain(), where=FEW))
    tally = building.run(request, jobs=2)
    assert tally.compiled > 1
    assert len(objects(request)) > tally.compiled


@pytest.mark.parametrize("change", [scribble, Path.unlink], ids=["same size and time", "deleted"])
def test_any_change_of_header_is_reported(tmp_path: Path, change: Callable[[Path], None]) -> None:
    header = tmp_path / "core.hpp"
    header.write_text("// core\n")
    headers.write(tmp_path, states([header]))
    assert headers.first_changed(tmp_path) == ""
    change(header)
    assert headers.first_changed(tmp_path) == str(header)


def test_record_that_is_link_is_refused(finished_build: Make, tmp_path: Path) -> None:
    request, victim = finished_build(), tmp_path / "victim"
    victim.write_text("precious")
    record = request.work / request.folder / ".built"
    record.unlink()
    record.symlink_to(victim)
    with pytest.raises(OutputError, match=r"\.built: can't be written: .* It is a link"):
        build(request)
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("year", [1990, 2050])
def test_file_times_do_not_decide(finished_build: Make, year: int) -> None:
    """A clock that jumps builds nothing again, and hides no change: the changed object is older, or newer."""
    request = finished_build()
    seconds = (year - 1970) * 365 * 86400
    for file in request.work.rglob("*"):
        os.utime(file, (seconds, seconds), follow_symlinks=False)
    assert build(request)[0].compiled == 0
    truncate(victim := request.work / request.folder / "obj/dispatch.o")
    os.utime(victim, (seconds, seconds))
    build(request)
    assert is_sound(request)

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
from ckpm.base.files import abandoned_drafts, write_atomically
from ckpm.kernels.code.toolchains import Toolchain
from ckpm.kernels.library import building
from ckpm.kernels.library.progress import Tally
from ckpm.kernels.library.request import LIBRARY, Request, prepare
from ckpm.kernels.upstream import headers
from ckpm.kernels.upstream.headers import states
from tests.unit.shared import capture_logs

Make = Callable[..., Request]
Stub = Callable[..., Toolchain]
FEW = ("key.logits", "key.lse")
pytestmark = pytest.mark.usefixtures("copied_manifest")


def build(request: Request) -> tuple[Tally, str]:
    return capture_logs(lambda: building.run(request, jobs=2))


def is_sound(request: Request) -> bool:
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


def test_nothing_is_linked_from_damaged_object(finished_build: Make) -> None:
    request = finished_build()
    folder = request.work / request.folder
    scribble(folder / "obj/dispatch.o")
    (folder / LIBRARY).unlink()
    tally, text = build(request)
    assert is_sound(request)
    assert f"{request.folder}/obj/dispatch.o is damaged" in text
    assert tally.retrieved == 1
    assert not list(folder.rglob("*.failure.json"))


@pytest.mark.parametrize("record", [".built", ".sconsign.signed"])
def test_damaged_record_costs_only_time(finished_build: Make, record: str) -> None:
    request = finished_build()
    (request.work / request.folder / record).write_bytes(b'["a"]\n7\n\xff{')
    tally, _ = build(request)
    assert is_sound(request)
    assert tally.compiled == 0


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


def test_garbage_in_configuration_of_cache_is_ignored(stub_toolchain: Stub, request_for: Make) -> None:
    request = request_for(stub_toolchain(), where=FEW)
    assert request.object_cache is not None
    request.object_cache.mkdir()
    (request.object_cache / "config").write_text("{garbage")
    (request.object_cache / "config.lock").touch()
    build(request)
    assert is_sound(request)


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


def dead_process() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_next_build_clears_leftovers_of_killed(finished_build: Make) -> None:
    request = finished_build()
    folder = request.work / request.folder
    left = [folder / "tmp/unit-1234.hipfb", folder / "obj/dispatch-77.o.tmp", folder / f"src/.a.hip.{dead_process()}.1"]
    living = folder / f".results.json.{os.getpid()}.1"
    for file in (*left, living):
        file.write_text("half")
    building.run(request, jobs=2)
    assert [file for file in (*left, living) if file.exists()] == [living]


def test_compilers_put_temporary_files_into_output_folder(stub_toolchain: Stub, request_for: Make) -> None:
    request = request_for(stub_toolchain(), where=FEW)
    script = Path(request.toolchain.compiler[0])
    script.write_text(script.read_text() + 'mktemp "$TMPDIR/crash.XXXXXX"\n')
    building.run(request, jobs=2)
    assert list((request.work / request.folder / "tmp").glob("crash.*"))
    building.run(request, jobs=2)
    assert not list((request.work / request.folder / "tmp").iterdir())


def test_draft_is_known_by_its_dead_process_alone(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a.json", b"1")
    dead = dead_process()
    for name in (f".a.json.{dead}.5", f".a.json.{os.getpid()}.5", f"a.json.{dead}.5", f".a.{dead}"):
        (tmp_path / name).write_text("")
    assert [file.name for file in abandoned_drafts(tmp_path)] == [f".a.json.{dead}.5"]
    assert abandoned_drafts(tmp_path / "absent") == []


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


@pytest.mark.parametrize(
    "change",
    [
        scribble,
        Path.unlink,
        lambda header: os.utime(header, (10**9, 10**9)),
        lambda header: header.write_text("// core\n// edited\n"),
    ],
    ids=["same size and time", "deleted", "touched", "longer"],
)
def test_any_change_of_header_is_reported(tmp_path: Path, change: Callable[[Path], None]) -> None:
    header = tmp_path / "core.hpp"
    header.write_text("// core\n")
    headers.write(tmp_path, states([header]))
    assert headers.first_changed(tmp_path) == ""
    change(header)
    assert headers.first_changed(tmp_path) == str(header)


@pytest.mark.parametrize(
    ("occupy", "reason"),
    [
        (lambda record, victim: record.mkdir(), r"Is a directory\. .*: delete it"),
        (lambda record, victim: record.symlink_to(victim), ".* It is a link"),
    ],
    ids=["folder", "link"],
)
def test_record_that_cannot_be_written_is_named(
    finished_build: Make, tmp_path: Path, occupy: Callable[[Path, Path], None], reason: str
) -> None:
    request, victim = finished_build(), tmp_path / "victim"
    victim.write_text("precious")
    record = request.work / request.folder / ".built"
    record.unlink()
    occupy(record, victim)
    with pytest.raises(OutputError, match=rf"\.built: can't be written: {reason}"):
        build(request)
    assert victim.read_text() == "precious"


def test_record_of_headers_that_is_folder_is_change(tmp_path: Path) -> None:
    (tmp_path / headers.RECORD).mkdir()
    assert headers.first_changed(tmp_path) == str(tmp_path / headers.RECORD)

"""The build graph, with a script as the compiler: steps that run, files that are reused, and failures.

SCons itself, the plan and the cache are real.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from ckpm.base.errors import CompileError, DiskFullError, TrustError
from ckpm.base.files import sha256_of
from ckpm.base.trust import demand_trusted_library
from ckpm.kernels.code import bf16, code_object
from ckpm.kernels.code.toolchains import Toolchain
from ckpm.kernels.families import batch_prefill
from ckpm.kernels.library import building, manifest, write_manifest
from ckpm.kernels.library.plan import BuildPlan
from ckpm.kernels.library.progress import Tally
from ckpm.kernels.library.request import LIBRARY, BuildRequest, prepare, scons_command
from ckpm.matrix.dialects import compute_units
from ckpm.matrix.problems import serving
from ckpm_emulator import code_object as reader
from tests.unit.shared import capture_logs

Make = Callable[..., BuildRequest]
Stub = Callable[..., Toolchain]
FEW = ("key.logits", "key.lse")


def build(request: BuildRequest, jobs: int = 2) -> tuple[Tally, str]:
    return capture_logs(lambda: building.run(request, jobs=jobs))


@pytest.fixture(autouse=True)
def _no_manifest(copied_manifest: None) -> None:
    pass


def calls(toolchain: Toolchain) -> list[str]:
    """The units that the stub compiler compiled since the last call."""
    log = Path(toolchain.environment["CKPM_STUB_LOG"])
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return [Path(line).stem for line in lines]


def test_builds_everything_once_and_then_nothing(stub_toolchain: Stub, request_for: Make) -> None:
    toolchain = stub_toolchain()
    request = request_for(toolchain)
    tally, text = build(request)
    steps = prepare(request)[0].steps
    units = [step for step in steps if step.kind == "unit"]
    assert sum(len(step.kernels) for step in units) == 128  # aiter, receipt 200
    assert sorted(calls(toolchain)) == sorted(
        [*(Path(step.target).stem for step in units), "dispatch", "harness", "link"]
    )
    assert tally.compiled == len(units) + 2
    assert (request.work / request.folder / LIBRARY).read_text() == "library\n"
    assert f"[{len(units) + 2}/{len(units) + 2}]" in text
    tally, _ = build(request)
    assert (tally.compiled, tally.retrieved, calls(toolchain)) == (0, 0, [])
    assert tally.summary() == "nothing to do"


def test_second_checkout_takes_everything_from_cache(finished_build: Make, request_for: Make) -> None:
    first = finished_build()
    second = request_for(first.toolchain, "a-second", where=FEW)
    calls(first.toolchain)
    tally, _ = build(second)
    assert calls(first.toolchain) == []
    sources = len(list((first.work / first.folder / "src").glob("*.hip")))
    assert (tally.compiled, tally.retrieved) == (0, sources)
    assert (second.work / second.folder / LIBRARY).exists()


def test_without_cache_nothing_is_shared(finished_build: Make, request_for: Make) -> None:
    first = finished_build()
    calls(first.toolchain)
    tally, _ = build(request_for(first.toolchain, "second", cached=False, where=FEW))
    assert tally.retrieved == 0
    assert calls(first.toolchain)


@pytest.mark.parametrize("change", ["toolchain", "flags", "tree", "header"])
def test_inputs_of_output_are_in_every_signature(
    stub_toolchain: Stub, request_for: Make, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    toolchain = stub_toolchain()
    request = request_for(toolchain, where=FEW)
    before = prepare(request)[0].steps
    if change == "toolchain":
        request = dataclasses.replace(request, toolchain=dataclasses.replace(toolchain, identity="stub 2"))
    elif change == "flags":
        request = dataclasses.replace(request, toolchain=dataclasses.replace(toolchain, flags=("-O2",)))
    elif change == "tree":
        request = dataclasses.replace(request, tree=dataclasses.replace(request.tree, identity="edited"))
    else:
        monkeypatch.setattr("ckpm.kernels.library.request._digest", lambda folder: "edited")
    after = prepare(request)[0].steps
    assert [step.target for step in after] == [step.target for step in before]
    compiled = [pair for pair in zip(before, after, strict=True) if pair[0].kind in ("unit", "host")]
    assert len(compiled) > 2
    assert all(old.signature != new.signature for old, new in compiled)
    assert [old.headers != new.headers for old, new in compiled] == [change != "flags"] * len(compiled)


def test_another_signature_rebuilds(finished_build: Make) -> None:
    request = finished_build()
    sources = len(list((request.work / request.folder / "src").glob("*.hip")))
    newer = dataclasses.replace(request.toolchain, identity="stub 2")
    tally, _ = build(dataclasses.replace(request, toolchain=newer))
    assert tally.compiled == sources > 2


def test_moved_compiler_rebuilds_nothing(finished_build: Make, tmp_path: Path) -> None:
    request = finished_build()
    toolchain = request.toolchain
    moved = tmp_path / "elsewhere"
    moved.write_bytes(Path(toolchain.compiler[0]).read_bytes())
    moved.chmod(0o755)
    elsewhere = dataclasses.replace(toolchain, compiler=(str(moved),), linker=(str(moved),), search=("-I/elsewhere",))
    tally, _ = build(dataclasses.replace(request, toolchain=elsewhere))
    assert (tally.compiled, tally.retrieved) == (0, 0)


def test_changed_selection_compiles_only_what_it_touches(stub_toolchain: Stub, request_for: Make) -> None:
    toolchain = stub_toolchain()
    build(request_for(toolchain))
    calls(toolchain)
    before = {step.label for step in prepare(request_for(toolchain))[0].steps}
    request = request_for(toolchain, where=("key.bias != 'alibi'",))
    new = {step.label for step in prepare(request)[0].steps if step.kind == "unit"} - before
    build(request)
    assert set(calls(toolchain)) == new | {"dispatch", "link"}
    sources = {file.stem for file in (request.work / request.folder / "src").glob("*.hip")}
    assert sources == {step.label for step in prepare(request)[0].steps if step.kind in ("unit", "host")}


def test_failing_kernel_does_not_stop_others(
    stub_toolchain: Stub, request_for: Make, caplog: pytest.LogCaptureFixture
) -> None:
    broken = stub_toolchain(breaks="namespace ckpm::k2 {")
    request = request_for(broken, where=("key.bias == 'no'", "key.logits"))
    (request.work / request.folder).mkdir(parents=True)
    (request.work / request.folder / LIBRARY).write_text("of an earlier selection")
    units = [step for step in prepare(request)[0].steps if step.kind == "unit"]
    hit = [step for step in units if len(step.kernels) > 2]
    assert hit
    caplog.set_level(logging.INFO)
    with pytest.raises(CompileError) as failure:
        build(request)
    assert len(re.findall(r"FAILED .* s: .*error: no such thing", caplog.text)) == len(hit)
    message = str(failure.value)
    assert f"{len(hit)} steps failed, {len(hit)} kernels at fault; everything else was compiled." in message
    for step in hit:
        assert f"  {step.kernels[2]}\n" in message  # the kernel whose lines the compiler named, and no other
        assert step.kernels[0] not in message
        assert not (request.work / step.target).exists()
    assert "error: no such thing" in message
    assert not (request.work / request.folder / LIBRARY).exists()
    assert not (request.work / request.folder / "manifest.json").exists()
    assert failure.value.exit_code == 5
    # once fixed, only the failed units are compiled
    calls(broken)
    repaired = stub_toolchain()
    build(dataclasses.replace(request, toolchain=repaired))
    assert set(calls(repaired)) == {*(step.label for step in hit), "link"}


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ({"compiler": ("/nowhere/clang",)}, "/nowhere/clang can't be started"),
        ({"linker": ("false",)}, r"libckpm\.so could not be made"),
    ],
)
def test_missing_compiler_or_failing_linker_is_named(
    stub_toolchain: Stub, request_for: Make, tool: dict[str, Any], message: str
) -> None:
    with pytest.raises(CompileError, match=message):
        build(request_for(dataclasses.replace(stub_toolchain(), **tool), where=FEW))


def test_full_disk_is_reported_as_such(stub_toolchain: Stub, request_for: Make) -> None:
    full = "#!/bin/sh\necho 'LLVM ERROR: IO failure on output stream: No space left on device'; exit 1\n"
    request = request_for(stub_toolchain(text=full), where=FEW)
    with pytest.raises(DiskFullError, match=r"no space left on the disk\. Free some and build again; it goes on"):
        build(request)
    assert not list((request.work / request.folder / "obj").glob("*.o"))


def test_killed_build_resumes(stub_toolchain: Stub, request_for: Make) -> None:
    toolchain = stub_toolchain()
    request = request_for(toolchain)
    plan, _ = prepare(request)
    slow = {**os.environ, **plan.environment}
    process = subprocess.Popen(
        scons_command(f"{plan.folder}/plan.json", 2, request.object_cache),
        cwd=request.work,
        env=slow,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    done = 0
    # two jobs: when the fourth is done, the first two are in the cache; then the power goes
    for line in process.stdout:
        done += '"done"' in line
        if done == 4:
            break
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert done == 4
    tally, _ = build(request)
    units = sum(step.kind in ("unit", "host") for step in plan.steps)
    assert tally.retrieved >= 2  # finished objects come back from the cache
    assert tally.compiled + tally.retrieved == units
    for step in plan.steps:
        if step.kind == "unit":  # the stub copies: nothing half-written was taken for finished
            assert (request.work / step.target).read_bytes() == (request.work / step.sources[0]).read_bytes()


def test_compilation_database_covers_every_source(stub_toolchain: Stub, request_for: Make) -> None:
    request = request_for(stub_toolchain())
    prepare(request)
    folder = request.work / request.folder
    entries = json.loads((folder / "compile_commands.json").read_text())
    assert {entry["file"] for entry in entries} == {
        str(f.relative_to(request.work)) for f in (folder / "src").glob("*.hip")
    }
    assert all(entry["arguments"][0] == request.toolchain.compiler[0] for entry in entries)


def test_signatures_hold_no_path(stub_toolchain: Stub, request_for: Make) -> None:
    here = prepare(request_for(stub_toolchain(), "here"))[0]
    there = prepare(request_for(stub_toolchain(), "there"))[0]
    assert [step.signature for step in here.steps] == [step.signature for step in there.steps]
    assert [step.target for step in here.steps] == [step.target for step in there.steps]


def test_plan_survives_its_file(stub_toolchain: Stub, request_for: Make, tmp_path: Path) -> None:
    plan, _ = prepare(request_for(stub_toolchain()))
    (tmp_path / "plan.json").write_text(plan.text())
    assert BuildPlan.read(tmp_path / "plan.json") == plan


def test_failure_of_every_kernel_is_blamed_on_tree(stub_toolchain: Stub, request_for: Make) -> None:
    headerless = "#!/bin/sh\necho '/ck/core.hpp:7:10: fatal error: 'x.hpp' file not found'; exit 1\n"
    request = request_for(stub_toolchain(text=headerless), where=FEW)
    with pytest.raises(CompileError) as failure:
        build(request)
    message = str(failure.value)
    assert "this is common to them: /ck/core.hpp:7:10: fatal error: x.hpp file not found" in message
    assert f"in {request.tree.root} may be damaged: 'ckpm doctor' examines it" in message
    assert "at fault" not in message


def test_filter_file_is_reported_by_name_and_content(stub_toolchain: Stub, request_for: Make, tmp_path: Path) -> None:
    summaries = []
    for folder in ("here", "there"):
        file = tmp_path / folder / "mine.py"
        file.parent.mkdir()
        file.write_text("def keep(key):\n    return key.lse\n")
        plan, _ = prepare(request_for(stub_toolchain(), folder, filter_files=(file,)))
        summaries.append(plan.facts["selection"])
    assert summaries[0] == summaries[1]
    digest = hashlib.sha256(b"def keep(key):\n    return key.lse\n").hexdigest()
    assert f"--filter-file mine.py (sha256 {digest})" in summaries[0]


@pytest.mark.parametrize("flags", ["-c", "-f /dev/null", "--version", "-n"])
def test_flags_of_scons_in_environment_have_no_effect(
    finished_build: Make, monkeypatch: pytest.MonkeyPatch, flags: str
) -> None:
    request = finished_build()
    monkeypatch.setenv("SCONSFLAGS", flags)
    assert build(request)[0].summary() == "nothing to do"
    (request.work / request.folder / LIBRARY).unlink()
    build(request)
    assert (request.work / request.folder / LIBRARY).read_text() == "library\n"


def test_scons_that_builds_nothing_fails(finished_build: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    request = finished_build()
    monkeypatch.setattr(building, "scons_command", lambda *_: ["true"])
    assert build(request)[0].summary() == "nothing to do"
    changed = dataclasses.replace(request, unit_size=1)
    with pytest.raises(CompileError, match=r"libckpm\.so, .*manifest\.json: not there, or not of this build"):
        build(changed)


@pytest.mark.parametrize("name", [".", LIBRARY, "obj", "manifest.json"])
def test_output_that_others_can_write_is_built_again(finished_build: Make, name: str) -> None:
    request = finished_build()
    library = request.work / request.folder / LIBRARY
    (library.parent / name).chmod(0o777)
    library.write_text("another user's")
    _, text = build(request)
    assert "other users could write there, so all of it is built again" in text
    assert library.read_text() == "library\n"
    demand_trusted_library(library)
    assert build(request)[0].summary() == "nothing to do"


def test_manifest_is_written_again_for_corrected_arch(finished_build: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its objects are the same, and the waves that fit on a compute unit are others."""
    request = finished_build()
    corrected = {name: msgspec.structs.replace(unit, waves=7) for name, unit in compute_units().items()}
    monkeypatch.setattr(write_manifest, "compute_units", lambda: corrected)
    tally, _ = build(request)
    assert (tally.compiled, "manifest written" in tally.summary()) == (0, True)


@pytest.mark.parametrize("module", [manifest, code_object, reader, serving, batch_prefill, bf16])
def test_manifest_signature_has_text_of_its_makers(
    stub_toolchain: Stub, request_for: Make, monkeypatch: pytest.MonkeyPatch, module: ModuleType
) -> None:
    request = request_for(stub_toolchain(), where=FEW)
    before = prepare(request)[0].steps
    changed = Path(str(module.__file__))
    monkeypatch.setattr(write_manifest, "sha256_of", lambda file: "edited" if file == changed else sha256_of(file))
    after = prepare(request)[0].steps
    assert [old.kind for old, new in zip(before, after, strict=True) if old != new] == ["manifest"]


def test_output_folder_of_another_user_is_refused(finished_build: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    request = finished_build()
    monkeypatch.setattr("ckpm.base.trust.trusted_owners", lambda: frozenset({4242}))
    with pytest.raises(TrustError, match=r"it belongs to user .* Delete it, or choose another folder with --work"):
        build(request)

"""Many kernels at once, the same kernel from several places, failures and kills, with a script that stands in for the
process that compiles. tests/build/test_jit.py has the real one.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import select as waiting
import signal
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ckpm.attention.jit import compiling
from ckpm.attention.jit.compiling import compile_each, compile_keys, where
from ckpm.attention.jit.on_demand import on_demand
from ckpm.attention.kernel_sets import kernel_set
from ckpm.base.errors import (
    CkPrefillError,
    CompileError,
    DiskFullError,
    MemoryLimitError,
    ServiceError,
    TrustError,
    UsageError,
)
from ckpm.kernels.library.request import LIBRARY
from ckpm.matrix.dialects import dialect
from ckpm.matrix.selection import Selection, select
from tests.unit.attention.jit_requests import COMPILER, DIALECT, NAME, TREE

NAMES = [key.name for key in select(dialect(DIALECT), Selection(archs=("gfx950",)))[:3]]

# The words are: -P -m ckpm.attention.jit.worker ORDER JOBS owner=N. It runs in the folder of the order.
FINISH = """
mkdir -p build/gfx950/aiter/src
echo library > build/gfx950/aiter/libckpm.so; echo '{}' > build/gfx950/aiter/manifest.json
echo index > build/gfx950/aiter/kernels.txt
echo '{"compilers": 2.5}' > tally.json
"""
FAIL = """
echo "the compiler's own words"
echo '{"exit_code": 5, "infrastructure": false, "message": "unit 7 is at fault"}' > failures
exit 5
"""
PLAIN: dict[str, Any] = {
    "dtype": "bf16", "hdim_q": 128, "mode": "group", "vlayout": "row", "mask": "no", "bias": "no", "lse": False,
    "logits": False, "dropout": False,
}  # fmt: skip
Script = Callable[[str], None]
SECONDS = 30  # until a killed process is taken for one that lives


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o755)
    monkeypatch.setenv("CKPM_CACHE", str(folder))
    monkeypatch.setattr(compiling, "_source", lambda source, cache: (TREE, COMPILER))
    return folder


@pytest.fixture
def script(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Set what the process that compiles does. ``runs`` beside it has a line for each."""
    file = tmp_path / "worker"
    monkeypatch.setattr("sys.executable", str(file))

    def write(text: str) -> None:
        file.write_text(f'#!/bin/sh\nhere="{tmp_path}"\necho "$4" >> "$here/runs"\n{text}')
        file.chmod(0o755)

    return write


def runs(tmp_path: Path) -> int:
    file = tmp_path / "runs"
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_each_kernel_has_its_folder_in_order_asked(script: Script, tmp_path: Path) -> None:
    script(FINISH)
    folders = compile_keys([NAMES[1], NAMES[0], NAMES[1]], "gfx950")
    assert (runs(tmp_path), folders[0], len(set(folders))) == (2, folders[2], 2)
    assert all((folder / LIBRARY).read_text() == "library\n" for folder in folders)


def test_finished_library_is_not_compiled_again(script: Script, tmp_path: Path) -> None:
    script(FINISH)
    (first,) = compile_each([NAME], "gfx950", where())
    (second,) = compile_each([NAME], "gfx950", where())
    assert (first.compiled, second.compiled, runs(tmp_path)) == (True, False, 1)
    assert (first.folder, first.compilers) == (second.folder, 2.5)


def test_failure_names_kernel_log_and_reason_and_is_not_kept(script: Script, cache: Path, tmp_path: Path) -> None:
    script(FAIL)
    for attempt in (1, 2):
        with pytest.raises(CompileError) as failure:
            compile_keys([NAME], "gfx950")
        log = next((cache / "jit/logs").iterdir())
        assert all(part in str(failure.value) for part in (NAME, "gfx950", "unit 7 is at fault", str(log)))
        assert log.read_text() == "the compiler's own words\n"
        assert runs(tmp_path) == attempt
    script(FINISH)
    (again,) = compile_each([NAME], "gfx950", where())
    assert again.compiled
    assert not log.exists()


def test_compilation_on_demand_reports_progress(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The worker goes on only when its own last line was reported."""
    monkeypatch.setattr(compiling, "_SECONDS_A_LINE", 0.01)
    os.mkfifo(tmp_path / "go")
    script('echo "[1/2] a unit"; read line < "$here/go"\n' + FINISH)
    seen: list[str] = []

    class Release(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if not seen and "so far; [1/2] a unit" in record.getMessage():
                seen.append(record.getMessage())
                (tmp_path / "go").write_text("\n")

    handler = Release()
    logger = logging.getLogger("ckpm")
    logger.addHandler(handler)
    try:
        (kernel,) = kernel_set("batch_prefill", tile={"bm0": 128}, **PLAIN)
        on_demand()((kernel,))
    finally:
        logger.removeHandler(handler)
    output = capsys.readouterr().err
    assert (f"compiling {kernel.name} for gfx950" in output, f"compiled {kernel.name} in" in output) == (True, True)
    assert seen[0] in output


def test_worker_that_ends_without_word_shows_its_last_lines(script: Script) -> None:
    script("echo some traceback; exit 1")
    with pytest.raises(CompileError, match="some traceback"):
        compile_keys([NAME], "gfx950")


def test_killed_compilation_is_error_and_is_not_kept(script: Script, cache: Path) -> None:
    script(FINISH + "kill -9 $$")
    with pytest.raises(ServiceError, match=f"{NAME}: SIGKILL ended") as failure:
        compile_keys([NAME], "gfx950")
    assert str(next((cache / "jit/logs").iterdir())) in str(failure.value)
    assert failure.value.infrastructure
    script(FINISH)
    (again,) = compile_each([NAME], "gfx950", where())
    assert again.compiled


@pytest.mark.parametrize("error", [DiskFullError, MemoryLimitError, TrustError])
def test_compilation_that_machine_stops_is_tried_again(
    error: type[CkPrefillError], script: Script, cache: Path
) -> None:
    """A dispatcher keeps the failures of kernels: it would refuse after space was freed."""
    script(f'echo \'{{"message": "the disk of the worker"}}\' > failures; exit {error.exit_code}')
    with pytest.raises(ServiceError, match=f"{NAME}: it could not be compiled.*the disk of the worker"):
        compile_keys([NAME], "gfx950")
    script(FINISH)
    (again,) = compile_each([NAME], "gfx950", where())
    assert again.compiled


def test_failed_kernel_does_not_stop_others(script: Script, cache: Path) -> None:
    script(f'if grep -q {NAMES[1]} "$4"; then {FAIL} fi; {FINISH}')
    done = []
    with pytest.raises(CompileError) as failure:
        done += list(compile_each(NAMES, "gfx950", where()))
    assert NAMES[1] in str(failure.value)
    assert NAMES[0] not in str(failure.value)
    assert len(list((cache / "jit/entries").iterdir())) == 2
    script(FAIL)
    with pytest.raises(CompileError, match="2 kernels could not be compiled"):
        compile_keys([NAMES[1], NAME], "gfx950")


def test_kernel_that_checkout_does_not_list_is_refused(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tree = dataclasses.replace(TREE, name="checkout", root=tmp_path)
    tree.fmha.mkdir(parents=True)
    listed = "\n".join(f"{name}.cpp" for name in NAMES[1:])
    (tree.fmha / "generate.py").write_text(f"open('blobs.txt', 'w').write({listed!r})\n")
    monkeypatch.setattr(compiling, "_source", lambda source, cache: (tree, COMPILER))
    with pytest.raises(UsageError, match=r"no selected kernel is listed by the tree's codegen.* lists other kernels"):
        compile_keys(NAMES[:1], "gfx950", "checkout", ck_root=tmp_path)
    assert not list(cache.glob("jit*"))


def test_checkout_is_at_option_or_ck_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CK_ROOT", "/from/environment")
    assert where("checkout").ck_root == "/from/environment"
    assert where("checkout", ck_root=tmp_path).ck_root == str(tmp_path)
    assert where("aiter").ck_root == ""  # a packaged tree: CK_ROOT must not make another content key of it
    with pytest.raises(UsageError, match="--upstream checkout"):
        where("aiter", ck_root=tmp_path)


def has_ended(process: int) -> bool:
    """Return True if a process ends soon. A compiler is a child of the helper that was ended with it."""
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    with closing(os.fdopen(descriptor)):
        return bool(waiting.select([descriptor], [], [], SECONDS)[0])


def test_caller_that_ends_early_ends_compilers(script: Script, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "started")
    script(
        f'if grep -q {NAMES[0]} "$4"; then {FINISH} exit 0; fi; echo $$ > "$here/pid"; echo > "$here/started"; '
        'read line < "$here/never"'
    )
    os.mkfifo(tmp_path / "never")
    with closing(compile_each(NAMES[:2], "gfx950", where(), jobs=2)) as libraries:
        assert next(libraries).name == NAMES[0]
        (tmp_path / "started").read_text()
    assert has_ended(int((tmp_path / "pid").read_text()))


def test_interrupt_ends_compilers(script: Script, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "started")
    os.mkfifo(tmp_path / "never")
    script('echo $$ > "$here/pid"; echo > "$here/started"; read line < "$here/never"')

    handled = threading.Event()

    def handle(number: int, frame: object) -> None:
        handled.set()
        raise KeyboardInterrupt

    def interrupt() -> None:
        (tmp_path / "started").read_text()
        while not handled.is_set():  # CPython handles a signal that comes just before a wait when the wait ends
            os.kill(os.getpid(), signal.SIGINT)
            handled.wait(1)

    thread = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGINT, handle)  # ignored if these tests run in the background
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            compile_keys([NAME], "gfx950")
    finally:
        signal.signal(signal.SIGINT, before)
    thread.join()
    assert has_ended(int((tmp_path / "pid").read_text()))

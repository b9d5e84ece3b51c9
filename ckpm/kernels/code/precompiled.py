"""The headers that units include, parsed once for the host and once for each device, and kept in the cache.

A unit's object has the same bytes as without them. clang takes the fitting file of a folder. It refuses a file if a
header has another size or time, but sees none that was added in front of it. After any failure the unit is compiled
without. Each compiler, set of options, identity of headers and clone has a folder. The last few are kept. Only the
pinned compiler takes them: its bytes were compared.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path

from ckpm.base import warming
from ckpm.base.files import write_if_changed
from ckpm.base.store import adopt, draft_folder, is_adopted
from ckpm.base.trust import why_untrusted

_KEPT = 4  # folders, each of 45 MB for the host and for each device
_ARCH = "--offload-arch="
_LOCK = threading.Lock()
_folders: dict[str, Path | None] = {}  # of this process; None: can't be made or used

Run = Callable[[Sequence[str], Mapping[str, str]], tuple[int, str]]


def run_unit(argv: Sequence[str], environment: Mapping[str, str], run: Run, headers: str) -> tuple[int, str]:
    """Run the compiler of a unit with precompiled headers, or without them. ``headers`` is their identity."""
    folder = _folder(argv, environment, run, headers)
    if folder is None:
        return run(argv, environment)
    at = argv.index("-c")
    code, output = run((*argv[:at], "-Xclang", "-include-pch", "-Xclang", str(folder), *argv[at:]), environment)
    if code == 0:
        return code, output
    code, output = run(argv, environment)
    if code == 0:  # so the headers were the failure, and not the unit
        _folders[folder.name] = None
        shutil.rmtree(folder, ignore_errors=True)
    return code, output


def _folder(argv: Sequence[str], environment: Mapping[str, str], run: Run, headers: str) -> Path | None:
    cache = environment.get(warming.ZIG_CACHE)
    if not cache:
        return None
    top = Path(cache).parents[1] / "headers"
    options = [word for word in argv[: argv.index("-c")] if not word.startswith("-cuid=")]
    lines = Path(argv[argv.index("-c") + 1]).read_text(encoding="utf-8").splitlines()
    head = takewhile(lambda line: not line or line.startswith(("//", "#include")), lines)
    if not (includes := [line for line in head if line.startswith("#include")]):
        return None
    text = "\n".join((*includes, ""))
    # the time of the compiler, whose own headers have others in a new environment with the same path
    inputs = [options, text, Path(argv[0]).stat().st_mtime_ns, headers]
    key = hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:16]
    with _LOCK:  # others wait for the first
        if key not in _folders:
            with contextlib.suppress(OSError):
                _folders[key] = _make(top, top / key, options, text, environment, run)
        return _folders.setdefault(key, None)


def _make(
    top: Path, folder: Path, options: Sequence[str], text: str, environment: Mapping[str, str], run: Run
) -> Path | None:
    """Parse the headers unless the cache has them; return their folder, or None if a header doesn't compile."""
    source = folder.with_suffix(".hip")  # not a draft: clang notes its path
    folder.mkdir(parents=True, exist_ok=True)
    write_if_changed(source, text)
    archs = [word for word in options if word.startswith(_ARCH)]
    targets = {"host.pch": ("--cuda-host-only", *archs)}
    targets |= {f"{arch.removeprefix(_ARCH)}.pch": ("--cuda-device-only", "-emit-llvm", arch) for arch in archs}
    common = [word for word in options if word not in archs]
    with draft_folder(top) as drafts, ThreadPoolExecutor() as pool:

        def parse(name: str) -> bool:
            if is_adopted(folder / name) and not why_untrusted(folder / name, top):
                return True
            command = (*common, *targets[name], "-Xclang", "-emit-pch", "-c", str(source), "-o", str(drafts / name))
            if run(command, environment)[0] != 0:
                return False
            adopt(drafts / name, folder / name)
            return True

        if not all(pool.map(parse, targets)):
            return None
    os.utime(folder)
    for old in sorted((file for file in top.iterdir() if file.suffix == ".hip"), key=_last_use)[:-_KEPT]:
        shutil.rmtree(old.with_suffix(""), ignore_errors=True)
        old.unlink(missing_ok=True)
    return folder


def _last_use(source: Path) -> float:
    with contextlib.suppress(OSError):
        return source.with_suffix("").stat().st_mtime
    return 0.0

"""Failures of a build's steps: the records that steps wrote, read with the compilers' messages in them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ckpm.base.console import number
from ckpm.base.errors import CompileError, DiskFullError, MemoryLimitError, ProcessLimitError
from ckpm.kernels.library.progress import Tally
from ckpm.kernels.library.request import LIBRARY, BuildRequest
from ckpm.kernels.library.run_step import FAILURE, first_error
from ckpm.kernels.upstream import headers

_NOISE = re.compile(r"\s*(In file included from|from) ")
_LINES = 25  # lines of the compiler's message shown for each unit; the record keeps all
# Messages of compilers, zig and Python if the system refuses them memory, a process or a thread.
_NO_MEMORY = (
    "LLVM ERROR: out of memory",
    "std::bad_alloc",
    "OutOfMemory",
    "MemoryError",
    "unable to execute command: Killed",
)
_NO_PROCESS = ("Resource temporarily unavailable", "SystemResources", "ThreadQuotaExceeded", "can't start new thread")


def refused_steps(request: BuildRequest) -> list[Mapping[str, Any]]:
    """Records of the steps that another machine refused to run."""
    return [record for record in _records(request) if record["refused"]]


def _records(request: BuildRequest) -> list[Mapping[str, Any]]:
    files = (request.work / request.folder).rglob(f"*{FAILURE}")
    return sorted((json.loads(file.read_text()) for file in files), key=lambda record: str(record["label"]))


def raise_failures(request: BuildRequest, tally: Tally) -> None:
    """Raise the error that describes the failed steps of a build."""
    if header := headers.first_changed(request.work / request.folder):
        raise CompileError(
            f"{header}: this header changed while the build ran, and nothing that was compiled since is kept. Run the "
            "build again."
        )
    records = _records(request)
    messages = [*(f"{record['label']}: {record['output']}" for record in records), *tally.other]
    if full := next((text for text in messages if "No space left on device" in text), None):
        raise DiskFullError(
            f"{full.partition(':')[0]}: no space left on the disk. Free some and build again; it goes on from here."
        )
    if any(sign in text for text in messages for sign in _NO_MEMORY):
        raise MemoryLimitError
    if any(sign in text for text in messages for sign in _NO_PROCESS):
        raise ProcessLimitError("compilers could not be started; what is compiled is kept")
    if reason := _common_reason(records):
        example = next(record for record in records if record["kind"] == "host")
        raise CompileError(
            f"{number(len(records), 'step')} failed, with and without kernels, and this is common to them: {reason}\n"
            f"The CK tree of {request.tree.name} in {request.tree.root} may be damaged: 'ckpm doctor' "
            f"examines it.\n{_describe(example, request.work)}"
        )
    texts = [_describe(record, request.work) for record in records]
    if any(record["kind"] in ("unit", "host") for record in records):
        count = sum(len(_failing_kernels(record, request.work)) for record in records)
        head = (
            f"{number(len(records), 'step')} failed, {number(count, 'kernel')} at fault; everything else was compiled."
        )
        raise CompileError("\n".join([head, *texts]))
    raise CompileError(
        "\n".join([f"{request.folder}/{LIBRARY} could not be made.", *texts, *tally.other[-20:]]), kind="link"
    )


def _common_reason(records: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the compiler's first error if all failed steps, with and without kernels, have the same one.

    No kernel is to blame for such an error: it is in a file that all steps include.
    """
    reasons = {first_error(str(record["output"])) for record in records}
    if len(reasons) != 1 or not {"unit", "host"} <= {str(record["kind"]) for record in records}:
        return None
    return reasons.pop() or None


def _describe(record: Mapping[str, Any], folder: Path) -> str:
    """Describe a failed step: the kernels to blame, the command's exit code, the compiler's first lines."""
    kernels = _failing_kernels(record, folder)
    head = f"{record['label']}: {Path(record['argv'][0]).name} ended with {record['code']}"
    if kernels:
        head += f"; at fault: {len(kernels)} of {len(record['kernels'])} kernels of this unit"
    # include chains and CK's own path don't identify the kernel
    lines = [line for line in str(record["output"]).splitlines() if line.strip() and not _NOISE.match(line)]
    shown = lines[:_LINES] + ([f"... {len(lines) - _LINES} more lines"] if len(lines) > _LINES else [])
    return "\n".join([head, *(f"  {name}" for name in kernels), *(f"    {line}" for line in shown)])


def _failing_kernels(record: Mapping[str, Any], folder: Path) -> list[str]:
    """Return the kernels whose instance a compiler message points into, all of the unit's if there is none.

    A message about a template names the line of our source that uses it, and each instance has its own lines.
    """
    if not record["kernels"]:
        return []
    source = folder / str(record["source"])
    lines = source.read_text(encoding="utf-8").splitlines() if source.is_file() else []
    starts = [number for number, line in enumerate(lines, 1) if line.startswith("namespace ckpm::k")]
    pointed = [int(n) for n in re.findall(rf"{re.escape(source.name)}:(\d+)", str(record["output"]))]
    blamed = {sum(start <= line for start in starts) - 1 for line in pointed}
    names = list(record["kernels"])
    return [names[index] for index in sorted(blamed) if 0 <= index < len(names)] or names

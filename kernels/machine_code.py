"""Machine code of a sample of kernels: upstream's rendered instance and ours, compiled alike, byte for byte.

Bindings say that both texts mean the same type; this says that the compiler agrees. The sample holds every value of
every axis, so that no word of the templates goes untested.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kernels import cpp, jobs
from kernels.codeobject import text as machine_text
from kernels.errors import CompileError
from kernels.files import write_atomically
from kernels.render import unit_text
from kernels.toolchains import Toolchain, device_command
from kernels.units import Unit
from kernels.upstream import Tree
from matrix.defects import Defect, defect_of, split
from matrix.keys import Key

INCLUDE = Path(__file__).with_name("include")
# Peak of one kernel's device compile, measured 0.84 GB for the 128-row tile.
_JOB_BYTES = 1_000_000_000
# Names of both texts' symbols depend on it, so it must be the same.
_CUID = "0" * 16
_ERROR_LINES = 8


@dataclass(frozen=True, slots=True)
class Comparison:
    """``difference`` is '' if the .text of both is the same; ``code_bytes`` is its length.

    ``error`` is not '' if one of the two could not be compiled; ``defect`` names the known defect of a kernel for which
    that was expected of both.
    """

    name: str
    code_bytes: int
    difference: str
    error: str = ""
    defect: str = ""


def axis_values(key: Key) -> frozenset[tuple[str, object]]:
    """The (axis, value) pairs that a key covers. Equal mask words of two mask sets are different values."""
    pairs: set[tuple[str, object]] = set()
    for axis, value in key.row().items():
        if axis not in ("name", "family", "mask", "mask_impl") and not axis.startswith("tile."):
            pairs.add((axis, value))
    return frozenset(pairs | {("mask", (key.mask_impl, key.mask)), ("tile", key.tile.word)})


def choose(keys: Sequence[Key], dialect: str) -> list[Key]:
    """What to compile: a sample of the kernels that compile, and the cheapest kernel of each known defect."""
    sound, left_out = split(keys, dialect)
    return [*sample(sound), *(min(defective, key=_size) for defective in left_out.values())]


def sample(keys: Sequence[Key]) -> list[Key]:
    """Few keys that hold every axis value of ``keys``: greedy set cover, smallest tile first.

    Among equals the key whose values were taken least so far, so that values meet in many combinations. Depends on the
    set and order of the keys alone.
    """
    values = {id(key): axis_values(key) for key in keys}
    missing = frozenset().union(*values.values())
    taken: Counter[tuple[str, object]] = Counter()
    chosen: list[Key] = []

    def rank(key: Key) -> tuple[int, int, int]:
        return len(values[id(key)] & missing), -_size(key), -sum(taken[pair] for pair in values[id(key)])

    while missing:
        best = max(keys, key=rank)
        chosen.append(best)
        missing -= values[id(best)]
        taken.update(values[id(best)])
    return sorted(chosen, key=_size)


def _size(key: Key) -> int:
    return key.tile.bm0 * key.tile.bn1


def default_jobs() -> int:
    """One compiler a processor, as far as memory goes."""
    memory = jobs.available_bytes()
    return jobs.processors() if memory is None else max(1, min(jobs.processors(), memory // _JOB_BYTES))


def compare(
    pairs: Sequence[tuple[Key, str]], tree: Tree, toolchain: Toolchain, arch: str, *, cache: Path, job_count: int
) -> list[Comparison]:
    """Compile both texts of each (key, upstream's rendered text) for ``arch`` and compare their code.

    Code is kept in ``cache`` by everything that decides about it, so that a second run compiles nothing. A compile that
    fails becomes that kernel's ``error``, unless a known defect says so. Raises CodeObjectError, DiskFullError.
    """
    features = cpp.features(tree.dialect, selector_takes_base=tree.selector_takes_base)
    texts = [text for key, theirs in pairs for text in (theirs, unit_text(Unit(key.name, (key,)), features))]

    def attempt(text: str) -> bytes | CompileError:
        try:
            return _code(text, tree, toolchain, arch, cache)
        except CompileError as error:
            return error

    with ThreadPoolExecutor(job_count) as pool:
        codes = list(pool.map(attempt, texts))
    return [
        _compare_failures(key.name, defect, theirs, ours)
        if (defect := defect_of(key, tree.dialect))
        else _compare(key.name, theirs, ours)
        for (key, _), theirs, ours in zip(pairs, codes[::2], codes[1::2], strict=True)
    ]


def _compare_failures(
    name: str, defect: Defect, theirs: bytes | CompileError, ours: bytes | CompileError
) -> Comparison:
    if isinstance(theirs, CompileError) and isinstance(ours, CompileError):
        words = [{line.partition("error: ")[2] for line in str(error).splitlines()} for error in (theirs, ours)]
        if words[0] == words[1]:
            return Comparison(name, 0, "", defect=defect.name)
        return Comparison(name, 0, f"upstream's text fails otherwise than ours: {theirs}\nours: {ours}")
    whose = "ours" if isinstance(theirs, CompileError) else "upstream's text"
    gone = f"{whose} compiles, but the known defect '{defect.name}' says it can't: mend matrix/tables/defects.yaml"
    return Comparison(name, 0, gone)


def _compare(name: str, theirs: bytes | CompileError, ours: bytes | CompileError) -> Comparison:
    for whose, code in (("upstream's", theirs), ("our", ours)):
        if isinstance(code, CompileError):
            return Comparison(name, 0, "", f"{whose} text does not compile: {code}")
    assert isinstance(theirs, bytes)
    assert isinstance(ours, bytes)
    if not theirs and not ours:
        return Comparison(name, 0, "", "neither text has machine code on this arch")
    if theirs == ours:
        return Comparison(name, len(ours), "")
    at = next((i for i, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a != b), min(len(theirs), len(ours)))
    words = f"upstream's .text has {len(theirs)} bytes, ours {len(ours)}; they differ from byte {at:#x} on"
    return Comparison(name, len(ours), words)


def _code(text: str, tree: Tree, toolchain: Toolchain, arch: str, cache: Path) -> bytes:
    """The .text of one source text, compiled or out of the cache."""
    own = b"".join(file.read_bytes() for file in sorted(INCLUDE.iterdir()) if file.name in text)
    signature = "\0".join((toolchain.identity, *toolchain.flags, arch, tree.identity, text)).encode() + own
    place = cache / "parity" / f"{hashlib.sha256(signature).hexdigest()}.text"
    if place.is_file():
        return place.read_bytes()
    with tempfile.TemporaryDirectory(prefix="ckpm-code-") as name:
        folder = Path(name)
        source, output = folder / "kernel.hip", folder / "kernel.hsaco"
        source.write_text(text, encoding="utf-8")
        command = device_command(
            toolchain,
            arch=arch,
            source=str(source),
            output=str(output),
            includes=[str(include) for include in (*tree.includes, INCLUDE)],
            cuid=_CUID,
            prefix_map={str(folder): "parity", str(tree.root): "ck"},
        )
        run = subprocess.run(
            command,
            env={**os.environ, **toolchain.environment},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if run.returncode != 0:
            lines = run.stderr.splitlines()
            told = [line for line in lines if "error" in line][:_ERROR_LINES] or lines[-_ERROR_LINES:]
            raise CompileError("\n".join(told) or f"the compiler ended with {run.returncode}")
        code = machine_text(output.read_bytes())
    write_atomically(place, code)
    return code

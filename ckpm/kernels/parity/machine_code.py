"""Machine code of a sample of kernels: upstream's rendered instances and our unit, compiled alike, byte for byte.

Bindings show that both texts mean the same type; machine code shows that the compiler agrees. The sample contains every
value of every axis. Upstream's instances are compiled one by one, as upstream does, ours together in one unit, as our
builds do, which takes half the time. A kernel's code may depend on its neighbours in the unit (seen with trees of 2026,
where instances share weak constants). Such a kernel is compiled alone as well, must be the same then, and is reported
with the difference. Kernels of families other than batch prefill are compiled one by one.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ckpm.base.errors import CompileError
from ckpm.base.processes import ProcessPool, tool_environment
from ckpm.base.store import Store
from ckpm.kernels.code import code_object as codeobject
from ckpm.kernels.code.toolchains import Toolchain, compile_command
from ckpm.kernels.families.family import INCLUDE, INCLUDE_BWD, INCLUDE_FWD
from ckpm.kernels.families.libraries import host, library_with
from ckpm.kernels.families.render import Unit, unit_text
from ckpm.kernels.families.spellings import features as features_of
from ckpm.kernels.upstream.tree import Tree
from ckpm.matrix.defects import Defect, defect_of, split
from ckpm.matrix.keys import Key

INCLUDES = (INCLUDE, INCLUDE_FWD, INCLUDE_BWD)
# Names of both texts' symbols depend on it, so it must be the same.
_CUID = "0" * 16
_ERROR_LINES = 8

Code = Mapping[str, bytes]  # machine code by function


@dataclass(frozen=True, slots=True)
class CodeComparison:
    """``difference`` is '' if the machine code of both is the same; ``code_bytes`` is its length.

    ``error`` is not '' if one of the two could not be compiled; ``defect`` names the known defect because of which both
    were expected to fail. ``beside`` is the difference if the kernel is compiled with others in one unit, else ''.
    """

    name: str
    code_bytes: int
    difference: str
    error: str = ""
    defect: str = ""
    beside: str = ""


def axis_values(key: Key) -> frozenset[tuple[str, object]]:
    """Return the (axis, value) pairs that a key covers. Equal masks of two mask sets are different values."""
    pairs: set[tuple[str, object]] = set()
    for axis, value in key.row().items():
        if axis not in ("name", "family", "mask", "mask_impl") and not axis.startswith("tile."):
            pairs.add((axis, value))
    return frozenset(pairs | {("mask", (key.mask_impl, key.mask)), ("tile", key.tile.word)})


def choose(keys: Sequence[Key], dialect: str, arch: str) -> list[Key]:
    """Choose kernels for ``arch``: a sample of the kernels that compile, and the cheapest of each known defect.

    Kernels that exist on other archs only are left out: the guard around their text leaves no device code to compare.
    """
    sound, left_out = split([key for key in keys if has_device_code(key, arch)], dialect)
    return [*sample(sound), *(min(defective, key=_size) for defective in left_out.values())]


def has_device_code(key: Key, arch: str) -> bool:
    """True if the key has device code on the arch: 64-bit loads have it on gfx94x and gfx950 alone."""
    return key.load != "gload" or arch.startswith("gfx94") or arch == "gfx950"


def sample(keys: Sequence[Key]) -> list[Key]:
    """Choose few keys that contain every axis value of ``keys``: greedy set cover, smallest tile first.

    Among equals it takes the key whose values were taken least so far, so that values meet in many combinations. The
    result depends on the set and order of the keys alone.
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


def compare(
    pairs: Sequence[tuple[Key, str]], tree: Tree, toolchain: Toolchain, arch: str, *, cache: Path, pool: ProcessPool
) -> Callable[[], list[CodeComparison]]:
    """Start to compile both texts of each (key, upstream's rendered text) for ``arch`` in ``pool``.

    Code is kept in ``cache`` by all its inputs, so that a second run compiles nothing.

    Returns:
        a function that waits and compares. A failed compile is the kernel's ``error``, unless it is a known defect.
        It raises CodeObjectError, DiskFullError.
    """
    features = features_of(tree.dialect, selector_takes_base=tree.selector_takes_base)
    known_defects = {key: defect_of(key, tree.dialect) for key, _ in pairs}

    def attempt(text: str) -> Code | CompileError:
        try:
            return _code(text, tree, toolchain, arch, cache, pool)
        except CompileError as error:
            return error

    def unit(*keys: Key) -> str:
        return unit_text(Unit("sample", keys), features)

    merging = [key for key, _ in pairs if known_defects[key] is None and host(library_with(key.family)).whole_units]
    merged = pool.submit(attempt, unit(*merging)) if merging else None  # first, for it takes longest
    alone = {key: pool.submit(attempt, unit(key)) for key in known_defects if key not in merging}
    upstream_codes = [pool.submit(attempt, text) for _, text in pairs]

    def finish() -> list[CodeComparison]:
        rows = []
        for (key, _), other in zip(pairs, upstream_codes, strict=True):
            defect = known_defects[key]
            if defect is not None:
                rows.append(_compare_failures(key.name, defect, other.result(), alone[key].result()))
            else:
                project_code = merged if key in merging else alone[key]
                assert project_code is not None
                row = _compare(key.name, other.result(), project_code.result())
                if row.difference and len(merging) > 1 and key in merging:
                    single = _compare(key.name, other.result(), attempt(unit(key)))
                    row = single if single.difference or single.error else replace(single, beside=row.difference)
                rows.append(row)
        return rows

    return finish


def _compare_failures(
    name: str, defect: Defect, upstream: Code | CompileError, project: Code | CompileError
) -> CodeComparison:
    if isinstance(upstream, CompileError) and isinstance(project, CompileError):
        messages = [{line.partition("error: ")[2] for line in str(error).splitlines()} for error in (upstream, project)]
        if messages[0] == messages[1]:
            return CodeComparison(name, 0, "", defect=defect.name)
        return CodeComparison(name, 0, f"upstream's text fails otherwise than ours: {upstream}\nours: {project}")
    whose = "ours" if isinstance(upstream, CompileError) else "upstream's text"
    gone = f"{whose} compiles, but the known defect '{defect.name}' expects a failure: fix matrix/defects.yaml"
    return CodeComparison(name, 0, gone)


def _compare(name: str, upstream: Code | CompileError, project: Code | CompileError) -> CodeComparison:
    """Compare machine code: all functions of upstream's object must be in our object, with the same bytes."""
    if isinstance(upstream, CompileError):
        return CodeComparison(name, 0, "", f"upstream's text does not compile: {upstream}")
    if isinstance(project, CompileError):
        return CodeComparison(name, 0, "", f"our text does not compile: {project}")
    if not upstream:
        return CodeComparison(name, 0, "", "upstream's text has no machine code on this arch")
    total = sum(map(len, upstream.values()))
    for function, code in upstream.items():
        if function not in project:
            return CodeComparison(name, total, f"upstream's text makes a function that ours doesn't: {function}")
        if project[function] != code:
            return CodeComparison(name, total, _first_difference(code, project[function]))
    return CodeComparison(name, total, "")


def _first_difference(upstream: bytes, project: bytes) -> str:
    at = next(
        (i for i, (a, b) in enumerate(zip(upstream, project, strict=False)) if a != b), min(len(upstream), len(project))
    )
    return f"upstream's code has {len(upstream)} bytes, ours {len(project)}; they differ from byte {at:#x} on"


def _code(text: str, tree: Tree, toolchain: Toolchain, arch: str, cache: Path, pool: ProcessPool) -> Code:
    """Return the machine code of one source text, compiled or from the cache."""
    headers = (file for folder in INCLUDES for file in sorted(folder.iterdir()))
    own = b"".join(file.read_bytes() for file in headers if file.name in text)
    signature = "\0".join((toolchain.identity, *toolchain.flags, arch, tree.identity, text)).encode() + own
    images, key = Store(cache / "parity"), hashlib.sha256(signature).hexdigest()
    if (image := images.get(key)) is not None:
        return codeobject.functions(image)
    with tempfile.TemporaryDirectory(prefix="ckpm-code-") as name:
        folder = Path(name)
        source, output = folder / "kernel.hip", folder / "kernel.hsaco"
        source.write_text(text, encoding="utf-8")
        command = compile_command(
            toolchain,
            archs=[arch],
            source=str(source),
            output=str(output),
            includes=[str(include) for include in (*tree.includes, *INCLUDES)],
            cuid=_CUID,
            prefix_map={str(folder): "parity", str(tree.root): "ck"},
            device_only=True,
        )
        run = pool.run(command, environment=tool_environment(toolchain.environment))
        if run.returncode != 0:
            lines = run.stderr.splitlines()
            errors = [line for line in lines if "error" in line][:_ERROR_LINES] or lines[-_ERROR_LINES:]
            raise CompileError("\n".join(errors) or f"the compiler ended with {run.returncode}")
        image = output.read_bytes()
    code = codeobject.functions(image)
    images.put(key, image)
    return code

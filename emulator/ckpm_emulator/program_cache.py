"""Programs for the core, made once for each code object and kept on disk."""

from __future__ import annotations

import hashlib
from functools import cache as memoised
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ckpm_emulator.cache import Store, cache_folder

if TYPE_CHECKING:
    from ckpm_emulator.lowering.translate import Judge

_MAKERS = (
    *("code_object", "image", "source_lines", "options"),
    *("lowering/arch_table", "lowering/blob", "lowering/decode", "lowering/descriptor", "lowering/flow"),
    *("lowering/lower", "lowering/matrix_table", "lowering/memory", "lowering/microop"),
    *("lowering/opcodes", "lowering/operands", "lowering/registers", "lowering/shapes"),
    *("lowering/translate", "lowering/vector"),
)
# Of tinygrad: what reads machine code.
_TABLES = (
    *("renderer/amd/__init__", "renderer/amd/dsl"),
    *(f"runtime/autogen/amd/{name}" for name in ("common", "cdna/enum", "cdna/ins", "cdna/operands")),
)
_JUDGES = ("inspection/early", "inspection/hazards", "inspection/hazard_effects", "inspection/hazard_rules")


def program(
    code_object: bytes, function: int | None = None, *, cache: Path | None = None, judge: Judge | None = None
) -> bytes:
    """The blob of a code object for emu_add_program, from the cache if it is there.

    ``function`` is the virtual address of a function that the image's blob leaves out: then its blob is returned.
    ``judge`` is None or inspection.early.too_early.

    Raises CodeObjectError if the bytes are not a readable code object of an emulated arch, or have no such function.
    """
    programs = Store(folder(cache))
    parts = hashlib.sha256(code_object).hexdigest(), makers(judged=judge is not None), hex(function) if function else ""
    key = hashlib.sha256("".join(parts).encode()).hexdigest()
    if (cached := programs.get(key)) is not None:
        return cached
    # Only now: the decoder's tables take longer to import than a launch may take to start.
    from ckpm_emulator.lowering.translate import translate

    blob = translate(code_object, judge, function)
    programs.put(key, blob)
    return blob


def folder(cache: Path | None = None) -> Path:
    """The folder of programs in the cache folder."""
    return (cache if cache is not None else cache_folder()) / "programs"


def makers(*, judged: bool) -> str:
    """The version of the makers, a part of a program's key (core/standalone/decoder.cpp)."""
    return text_version((*_MAKERS, *_JUDGES) if judged else _MAKERS)


@memoised
def text_version(modules: tuple[str, ...]) -> str:
    """A hash of the text of these modules, of LLVM's facts, and of tinygrad's tables."""
    spec = find_spec("tinygrad")
    assert spec is not None  # else the decoder has no tables
    assert spec.origin is not None
    digest = hashlib.sha256((Path(__file__).parent / "lowering/isa.yaml").read_bytes())
    for folder, names in ((Path(__file__).parent, modules), (Path(spec.origin).parent, _TABLES)):
        for name in names:
            digest.update((folder / f"{name}.py").read_bytes())
    return digest.hexdigest()

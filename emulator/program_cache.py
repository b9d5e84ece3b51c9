"""Programs for the core, made once for each code object and kept on disk."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from functools import cache as memoised
from importlib.metadata import version
from pathlib import Path

from emulator.toolchain import cache_folder
from emulator.trust import why_untrusted

_MAKERS = (
    *("code_object", "image", "options"),
    *("lowering/blob", "lowering/decode", "lowering/lower", "lowering/memory", "lowering/microop", "lowering/opcodes"),
    *("lowering/operands", "lowering/scalar", "lowering/shapes", "lowering/translate", "lowering/vector"),
)


def program(code_object: bytes, *, cache: Path | None = None) -> bytes:
    """The blob of a code object for emu_add_program, from the cache if it is there.

    Raises CodeObjectError if the bytes are no readable code object of an emulated arch.
    """
    folder = (cache if cache is not None else cache_folder()) / "programs"
    path = folder / f"{hashlib.sha256(code_object + text_version(_MAKERS).encode()).hexdigest()}.blob"
    if (cached := stored(path)) is not None:
        return cached
    # Only now: the decoder's tables take longer to import than a launch may take to start.
    from emulator.lowering.translate import translate

    made = translate(code_object)
    store(path, made)
    return made


def stored(path: Path) -> bytes | None:
    """What was stored there, whole; None if nothing was, or if others could have put it there."""
    with contextlib.suppress(OSError):
        if why_untrusted(path, path.parent):
            return None
        return path.read_bytes()
    return None


def store(path: Path, made: bytes) -> None:
    """Store it, all at once. A cache that can't be written costs time, nothing else."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f"{path.stem}.")
        with os.fdopen(handle, "wb") as file:
            file.write(made)
        Path(draft).replace(path)


@memoised
def text_version(modules: tuple[str, ...]) -> str:
    """A hash of what makes something out of machine code: the text of these modules of ours, tinygrad's version."""
    digest = hashlib.sha256(version("tinygrad").encode())
    for name in modules:
        digest.update((Path(__file__).parent / f"{name}.py").read_bytes())
    return digest.hexdigest()

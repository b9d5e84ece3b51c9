"""Programs for the core, made once for each code object and kept on disk."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from functools import cache as memoised
from importlib.metadata import version
from pathlib import Path

from emulator import image
from emulator.blob import make_blob
from emulator.decode import Instruction, decode
from emulator.lower import lower
from emulator.toolchain import cache_folder

_MAKERS = (
    *("blob", "decode", "image", "lower", "lower_memory", "lower_scalar", "lower_vector"),
    *("microop", "opcodes", "operands"),
)


def program(code_object: bytes, *, cache: Path | None = None) -> bytes:
    """The blob of a code object for emu_add_program, from the cache if it is there.

    Raises CodeObjectError if the bytes are no readable code object of an emulated arch.
    """
    folder = (cache if cache is not None else cache_folder()) / "programs"
    key = hashlib.sha256(code_object + _version().encode()).hexdigest()
    path = folder / f"{key}.blob"
    with contextlib.suppress(OSError):
        return path.read_bytes()
    made = translate(code_object)
    # A cache that can't be written costs time, nothing else.
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=folder, prefix=f"{key}.")
        with os.fdopen(handle, "wb") as file:
            file.write(made)
        Path(draft).replace(path)
    return made


def translate(code_object: bytes) -> bytes:
    """The same without the cache."""
    read = image.read(code_object)
    instructions: list[Instruction] = []
    spans: dict[str, tuple[int, int]] = {}
    end = 0
    for function in read.functions:
        start = function.address - read.text_address
        # Two names of one function, or an alias into it.
        if start < end:
            first = next((i for i, one in enumerate(instructions) if one.pc == start), None)
            if first is not None:
                spans[function.name] = (first, len(instructions))
            continue
        end = start + function.size
        first = len(instructions)
        instructions += decode(read.text[start:end], start)
        spans[function.name] = (first, len(instructions))
    return make_blob(read, lower(instructions), spans)


@memoised
def _version() -> str:
    """A hash of what makes programs: our own text and tinygrad's version."""
    digest = hashlib.sha256(version("tinygrad").encode())
    for name in _MAKERS:
        digest.update(Path(__file__).with_name(f"{name}.py").read_bytes())
    return digest.hexdigest()

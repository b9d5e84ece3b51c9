"""A program as bytes in the layout of core/run/blob.h, for emu_add_program and the cache."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ckpm_emulator.image import Image
from ckpm_emulator.lowering import microop
from ckpm_emulator.lowering.descriptor import Refusal
from ckpm_emulator.lowering.lower import Lowered

MAGIC = b"EMUPROG5"
_TABLES = (
    *("ops", "texts", "kernels", "arguments", "hidden", "segments", "relocations", "variables", "formats"),
    *("lines", "strings", "data"),
)
_ALIGNMENT = 64

TEXT = np.dtype([("offset", "<u4"), ("bytes", "<u4")])
TABLE = np.dtype([("offset", "<u8"), ("count", "<u8")])
HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("arch", "<u4"),
        ("micro_op_bytes", "<u4"),
        ("image_bytes", "<u8"),
        ("text_address", "<u8"),
        ("text_bytes", "<u8"),
        *((name, TABLE) for name in _TABLES),
    ]
)
_KERNEL_NUMBERS = (
    *("entry", "end", "lds_bytes", "scratch_bytes", "kernarg_bytes", "rsrc1", "rsrc2", "rsrc3", "properties"),
    *(
        "preload",
        "max_workgroup",
        "first_argument",
        "argument_count",
        "first_hidden",
        "hidden_count",
        "refused_at",
        "refusal",
    ),
)
KERNEL = np.dtype(
    [
        ("name", TEXT),
        ("descriptor_address", "<u8"),
        ("address", "<u8"),
        *((name, "<u4") for name in _KERNEL_NUMBERS),
        ("spare", "<u4"),
    ]
)
ARGUMENT = np.dtype([("offset", "<u4"), ("bytes", "<u4")])
HIDDEN = np.dtype([("kind", "<u4"), ("offset", "<u4"), ("bytes", "<u4")])
SEGMENT = np.dtype([(name, "<u8") for name in ("address", "data_offset", "data_bytes", "memory_bytes")])
RELOCATION = np.dtype([("address", "<u8"), ("addend", "<u8")])
LINE = np.dtype([("pc", "<u4"), ("text", "<u4")])
FORMAT = np.dtype([("text", TEXT), ("hash", "<u8")])
VARIABLE = np.dtype([("name", TEXT), ("address", "<u8"), ("bytes", "<u8")])


class _Strings:
    def __init__(self) -> None:
        self.data = bytearray()

    def add(self, text: str) -> tuple[int, int]:
        encoded = text.encode()
        self.data += encoded
        return len(self.data) - len(encoded), len(encoded)


def make_blob(
    image: Image, lowered: Lowered, spans: Mapping[str, tuple[int, int]], refused: Mapping[str, Refusal]
) -> bytes:
    """The blob of a code object. ``spans`` has the range of micro-ops of each decoded function by its name, ``refused``
    the reasons why kernels can't be launched, by kernel.
    """
    strings = _Strings()
    texts = list(lowered.texts)
    kernels, arguments, hidden = _kernel_rows(image, spans, refused, strings, texts)
    lines = _line_rows(image, texts) if len(lowered.ops) else []
    data = bytearray()
    segments = []
    for segment in image.segments:
        segments.append((segment.address, len(data), len(segment.data), segment.memory_bytes))
        data += segment.data
    tables = {
        "ops": lowered.ops,
        "texts": _table((strings.add(text) for text in texts), TEXT),
        "kernels": _table(kernels, KERNEL),
        "arguments": _table(arguments, ARGUMENT),
        "hidden": _table(hidden, HIDDEN),
        "segments": _table(segments, SEGMENT),
        "relocations": _table(image.relocations, RELOCATION),
        "variables": _table(
            ((strings.add(variable.name), variable.address, variable.size) for variable in image.variables), VARIABLE
        ),
        "formats": _table(((strings.add(text), number) for text, number in image.formats), FORMAT),
        "lines": _table(lines, LINE),
    }
    # Last, when every string is in.
    tables["strings"] = np.frombuffer(bytes(strings.data), np.uint8)
    tables["data"] = np.frombuffer(bytes(data), np.uint8)
    header = np.zeros((), HEADER)
    header["magic"], header["arch"], header["micro_op_bytes"] = MAGIC, image.arch, microop.MICRO_OP.itemsize
    header["image_bytes"] = max((segment.address + segment.memory_bytes for segment in image.segments), default=0)
    header["text_address"], header["text_bytes"] = image.text_address, len(image.text)
    body = bytearray(_padding(HEADER.itemsize) + HEADER.itemsize)
    for name in _TABLES:
        body += bytes(_padding(len(body)))
        header[name] = (len(body), len(tables[name]))
        body += tables[name].tobytes()
    body[: HEADER.itemsize] = header.tobytes()
    return bytes(body)


def _kernel_rows(
    image: Image,
    spans: Mapping[str, tuple[int, int]],
    refused: Mapping[str, Refusal],
    strings: _Strings,
    texts: list[str],
) -> tuple[list[Any], list[tuple[int, int]], list[tuple[int, int, int]]]:
    """Rows of the kernels and of their arguments and hidden arguments; the reason of a refusal is a text."""
    kernels: list[Any] = []
    arguments: list[tuple[int, int]] = []
    hidden: list[tuple[int, int, int]] = []
    for kernel in image.kernels:
        entry, end = spans.get(kernel.function.name, (0, 0))
        refusal = refused.get(kernel.name)
        if refusal:
            texts.append(refusal.reason)
        numbers = (
            *(entry, end, kernel.lds_bytes, kernel.scratch_bytes, kernel.kernarg_bytes, kernel.rsrc1, kernel.rsrc2),
            *(kernel.rsrc3, kernel.properties, kernel.preload, kernel.max_workgroup),
            *(len(arguments), len(kernel.arguments), len(hidden), len(kernel.hidden)),
            *((refusal.at, len(texts)) if refusal else (0, 0)),
        )
        addresses = kernel.descriptor_address, kernel.function.address
        kernels.append((strings.add(kernel.name), *addresses, *numbers, 0))
        arguments += kernel.arguments
        hidden += kernel.hidden
    return kernels, arguments, hidden


def _line_rows(image: Image, texts: list[str]) -> list[tuple[int, int]]:
    """Rows of the source lines: the pc where each begins, and the number of its text."""
    numbers = {"": 0}
    for _, line in image.lines:
        if line not in numbers:
            texts.append(line)
            numbers[line] = len(texts)
    return [(pc, numbers[line]) for pc, line in image.lines]


def _table(rows: Iterable[Any], dtype: np.dtype[Any]) -> Any:
    listed: Sequence[Any] = list(rows)
    return np.array(listed, dtype) if listed else np.zeros(0, dtype)


def _padding(length: int) -> int:
    return -length % _ALIGNMENT

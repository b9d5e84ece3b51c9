"""Find the kernels of a code object's mangled symbols by the template arguments in each symbol.

The pattern of a kernel's symbol comes from its family (``Family.symbol``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ckpm.base.errors import CodeObjectError
from ckpm.kernels.families.table import FAMILIES


def match(
    keys: Mapping[str, Mapping[str, Any]], symbols: Sequence[str], unit: Path, arch: str, family: str
) -> dict[str, list[str]]:
    """Return kernel name -> symbols of its variants, for kernels of one unit (one family and dtype) on an arch.

    Raises:
        CodeObjectError: a kernel has too few symbols or too many, or a symbol is left over.
    """
    by_name: dict[str, list[str]] = {}
    own = FAMILIES[family]
    for name, values in keys.items():
        wanted, count = own.symbol(values), own.variants(values, arch)
        by_name[name] = [symbol for symbol in symbols if wanted.search(symbol)]
        if len(by_name[name]) != count:
            raise CodeObjectError(
                f"{unit} ({arch}): {len(by_name[name])} of {len(symbols)} kernel symbols are {name}; "
                f"{'one was' if count == 1 else f'{count} were'} planned. "
                "Remove the object and build again; if it persists, the compiled code is not what was rendered."
            )
    if left := set(symbols) - {symbol for group in by_name.values() for symbol in group}:
        raise CodeObjectError(f"{unit} ({arch}): {len(left)} kernels that were not planned, e.g. {min(left)}.")
    return by_name

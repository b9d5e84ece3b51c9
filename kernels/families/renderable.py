"""Which families there is C++ for, in which dialects, and which of them make a library together."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kernels.families.appendkv_cpp import APPENDKV
from kernels.families.fwd_cpp import COMBINE, FWD, PAGED, SPLITKV
from kernels.families.fwd_v3_render import FWD_V3
from kernels.families.spellings import spellings
from matrix.base.errors import UsageError
from matrix.keys import Key

PREFILL = "batch_prefill"
# library -> the families in it: a library has one dispatch and one C ABI
LIBRARIES: Mapping[str, tuple[str, ...]] = {
    PREFILL: (PREFILL,),
    FWD: (FWD,),
    PAGED: (PAGED,),
    SPLITKV: (SPLITKV, COMBINE),
    APPENDKV: (APPENDKV,),
    FWD_V3: (FWD_V3,),
}
# dialects whose templates are known; batch prefill's are those of spellings.yaml
_DIALECTS: Mapping[str, tuple[str, ...]] = {
    FWD: ("ck-2025-11",),
    PAGED: ("ck-2025-11",),
    SPLITKV: ("ck-2025-11",),
    APPENDKV: ("ck-2025-11",),
    FWD_V3: ("ck-2025-11",),
}


def dialects(library: str) -> tuple[str, ...]:
    """The dialects that a library can be rendered in."""
    return _DIALECTS.get(library, tuple(spellings()["dialects"]))


def library_of(families: Collection[str], dialect: str) -> str:
    """The library that kernels of these families make in a dialect.

    Raises:
        UsageError: there is no C++ for one of them, they don't go together, or one of a library is missing.
    """
    for library, members in LIBRARIES.items():
        if set(families) == set(members) and dialect in dialects(library):
            return library
    can = "; ".join(f"--family {','.join(LIBRARIES[name])} ({', '.join(dialects(name))})" for name in LIBRARIES)
    raise UsageError(
        f"{', '.join(families)} of dialect {dialect} can't be rendered into one library. What can be: {can}."
    )


def library_of_keys(keys: Sequence[Key], dialect: str) -> str:
    """The library that selected kernels make.

    Raises:
        UsageError: as :func:`library_of`; or a family of the library has no kernel among them.
    """
    families = {key.family for key in keys}
    for library, members in LIBRARIES.items():
        if families < set(members):
            missing = ", ".join(name for name in members if name not in families)
            raise UsageError(
                f"no kernel of {missing} is selected, which a library of {library} needs. "
                f"Ask for --family {','.join(members)} and widen --filter or --where."
            )
    return library_of(families, dialect)

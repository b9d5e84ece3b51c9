"""Libraries: which families are built into one, in which dialects, and its name."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ckpm.base.errors import UsageError
from ckpm.kernels.families.family import Host
from ckpm.kernels.families.table import FAMILIES
from ckpm.matrix.dialects import DEFAULT_FAMILY
from ckpm.matrix.keys import Key


def libraries() -> Mapping[str, tuple[str, ...]]:
    """The families of each library, by the name of the family that has its host side."""
    by_library: dict[str, tuple[str, ...]] = {}
    for family in FAMILIES:
        library = library_with(family)
        by_library[library] = (*by_library.get(library, ()), family)
    return by_library


def library_with(family: str) -> str:
    """The library that a family of the table is built into."""
    return FAMILIES[family].library or family


def host(library: str) -> Host:
    """The host side of a library of the table."""
    answer = FAMILIES[library].host
    assert answer is not None, f"{library} is built into another family's library"
    return answer


def is_default(library: str) -> bool:
    """True if commands build and run this library without --family: folders, units and baselines don't name it."""
    return library == DEFAULT_FAMILY


def option(library: str) -> tuple[str, ...]:
    """The options of a command line that select a library."""
    return () if is_default(library) else ("--family", ",".join(libraries()[library]))


def build_command(archs: Sequence[str], upstream: str, library: str = DEFAULT_FAMILY) -> str:
    """The command that builds a library, e.g. ``ckpm build --arch gfx950 --upstream aiter``."""
    return " ".join(("ckpm build --arch", ",".join(archs), "--upstream", upstream, *option(library)))


def made_of(families: Collection[str]) -> str | None:
    """The library that consists of these families, in any dialect."""
    return next((library for library, members in libraries().items() if set(families) == set(members)), None)


def whole(families: tuple[str, ...]) -> tuple[str, ...]:
    """The families to build for the requested ones: a library's name alone stands for all families in it."""
    return libraries().get(families[0], families) if len(families) == 1 else families


def library_of(families: Collection[str], dialect: str, own_headers: bool = False) -> str:
    """The library that kernels of these families make in a dialect.

    With ``own_headers`` the tree has headers of ours. They are batch prefill's: the other families' are of another
    version of CK.
    """
    library = made_of(families)
    if library is not None and host(library).renders(dialect) and not (own_headers and not is_default(library)):
        return library
    can = "; ".join(
        f"--family {','.join(members)} ({', '.join(host(name).dialects())})" for name, members in libraries().items()
    )
    raise UsageError(
        f"{', '.join(families)} of dialect {dialect} can't be rendered into one library. What can be: {can}."
    )


def library_of_keys(keys: Sequence[Key], dialect: str) -> str:
    """The library that selected kernels make."""
    families = dict.fromkeys(key.family for key in keys)
    for library, members in libraries().items():
        if set(families) < set(members):
            missing = [name for name in members if name not in families and name not in host(library).may_lack]
            if not missing:
                return library_of(members, dialect)
            raise UsageError(
                f"no kernel of {', '.join(missing)} is selected, which a library of {library} needs. "
                f"Ask for --family {','.join(members)} and widen --filter or --where."
            )
    return library_of(families, dialect)

"""Profiles of an upstream: what `--upstream ckpm --profile v3` names is another upstream (tables/upstreams.yaml)."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from ckpm.base.errors import UnknownWordError, UsageError
from ckpm.base.tablefile import read_table
from ckpm.matrix.dialects import TABLES, UpstreamTable, check_upstream, upstreams
from ckpm.matrix.selection import profiles


@functools.cache
def upstream_profiles() -> Mapping[str, Mapping[str, str]]:
    """Upstream -> its profiles -> the upstream that each stands for. Raises TableError."""
    table = read_table(TABLES / "upstreams.yaml", UpstreamTable)
    for name, row in table.record.profiles.items():
        if name not in upstreams():
            raise table.fail("is not an upstream of this table", "profiles", name)
        for profile, variant in row.items():
            if variant not in upstreams():
                raise table.fail(f"'{variant}' is not an upstream of this table", "profiles", name, profile)
            if profile in profiles():
                raise table.fail("is also a profile of selections.yaml; rename one", "profiles", name, profile)
    return table.record.profiles


def variant(upstream: str, profile: str) -> str | None:
    """The upstream that a profile of ``upstream`` stands for; None for a profile of selections.yaml, or an unknown one.

    Raises:
        UnknownWordError. UsageError: it is a profile of another upstream.
    """
    if upstream != "checkout":
        check_upstream(upstream)
    if profile in (own := upstream_profiles().get(upstream, {})):
        return own[profile]
    if others := [name for name, row in upstream_profiles().items() if profile in row]:
        raise UsageError(
            f"--profile {profile}: upstream {upstream} has no such profile. Ask for --upstream {' or '.join(others)}."
        )
    return None


def library_variant(upstream: str, profile: str) -> str:
    """Return :func:`variant` for commands that take a library as it was built, which other profiles don't apply to.

    Raises:
        UnknownWordError. UsageError: as said, or the upstream has no profiles.
    """
    if chosen := variant(upstream, profile):
        return chosen
    if profile in profiles():
        raise UsageError(
            f"--profile {profile} narrows what is built or listed; leave it out: a library is taken whole."
        )
    if upstream not in upstream_profiles():
        raise UsageError(f"--profile {profile}: upstream {upstream} has no profiles. Leave it out.")
    raise UnknownWordError("profile", profile, upstream_profiles()[upstream])

"""Host dispatch as nested conditions (device, dtype, head dims, the kernel's own), and the C ABI of ckpm_fwd.h."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ckpm.kernels.families.template_engine import environment
from ckpm.kernels.families.words import arch_tag, device_check
from ckpm.matrix.keys import Key

Arm = tuple[str, str, str, str, str]  # alias, kernel's name, trait, arch tag, conditions
T = TypeVar("T")
Nested = list[tuple[str, list[tuple[str, list[tuple[int, int, list[T]]]]]]]


def by_device(keys: Sequence[Key]) -> list[Key]:
    """Sort keys so that a more specific device comes first: gfx950 before gfx9."""
    return sorted(keys, key=lambda key: -len(key.arch_trait))


def nest(arms: Iterable[tuple[Key, T]]) -> Nested[T]:
    """Group arms for the templates: [(device check, [(dtype, [(hdim_q, hdim_v, [arm])])])]."""
    tree: dict[str, dict[str, dict[tuple[int, int], list[T]]]] = {}
    for key, arm in arms:
        hdims = tree.setdefault(key.arch_trait, {}).setdefault(key.dtype, {})
        hdims.setdefault((key.hdim_q, key.hdim_v), []).append(arm)
    return [
        (
            device_check(arch),
            [(dtype, [(*hdims, group) for hdims, group in by_hdim.items()]) for dtype, by_hdim in dtypes.items()],
        )
        for arch, dtypes in tree.items()
    ]


def one_stage(
    keys: Sequence[Key],
    *,
    function: str,
    trait: Callable[[Key], str],
    conditions: Callable[[Key], tuple[str, ...]],
    by_reference: bool,
    counts_units: bool,
) -> str:
    """The dispatch text of a family with one kernel a launch, over keys sorted :func:`by_device`.

    ``function`` is CK's, which takes its arguments by value or ``by_reference``. With ``counts_units`` the conditions
    read the number of the device's compute units.
    """
    arms: list[tuple[Key, Arm]] = [
        (key, (f"T{index}", key.name, trait(key), arch_tag(key.arch_trait), " && ".join(conditions(key))))
        for index, key in enumerate(keys)
    ]
    template = environment().get_template("fwd_dispatch.hip.j2")
    return template.render(
        function=function,
        reference="&" if by_reference else "",
        counts_units=counts_units,
        archs=nest(arms),
        kernels=[arm for _, arm in arms],
    )


def harness_text(dialect: str, family: str, *, dropout: bool, pages: bool, splits: bool) -> str:
    """The C ABI of kernels/include_fwd/ckpm_fwd.h for a family that has dropout, a paged cache, splits, or not."""
    return (
        environment()
        .get_template("fwd_harness.hip.j2")
        .render(
            dialect=dialect, family=family, function=f"fmha_{family}", abi="ckpm_fwd",
            dropout=dropout, pages=pages, splits=splits,
        )
    )  # fmt: skip

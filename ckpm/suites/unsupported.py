"""The line about a suite's unsupported cases: the values that the library's kernels lack, and what serves the cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ckpm.kernels.library.manifest import Manifest
from ckpm.matrix.dialects import DEFAULT_FAMILY, dialect, upstreams
from ckpm.matrix.keys import Key
from ckpm.matrix.problems.problem import Problem
from ckpm.matrix.problems.serving import in_words, match, missing_kernel, needed_values
from ckpm.matrix.selection import Selection, select

_SHOWN = 4  # fields, and values of each
_WORDS = {  # of a key's field with values
    "page_size": "pages of {}",
    "hdim_q": "head dim {}",
    "tile.bm0": "tiles of {} rows",
    "dtype": "{}",
    "qscale": "scales {}",
    "mask": "mask {}",
    "bias": "bias {}",
}


def unsupported_line(problems: Sequence[Problem], manifest: Manifest, arch: str) -> str:
    """The values that kernels lack, each with its number of problems, and the upstream that serves most of them."""
    needs = Counter(_need(problem) for problem in problems)
    examples = {_need(problem): problem for problem in problems}
    keys = manifest.keys(tuple(manifest.kernels))
    lacks: dict[str, Counter[str]] = {}
    for need, count in needs.items():
        if lack := match(keys, examples[need]).lack:
            lacks.setdefault(lack[0], Counter())[in_words(lack[1])] += count
        else:
            lacks.setdefault("dispatch", Counter())["takes no kernel of this library"] += count
    ordered = sorted(lacks.items(), key=lambda item: -item[1].total())
    reasons = [f"{_reason(field, values)} ({values.total():,})" for field, values in ordered[:_SHOWN]]
    if rest := sum(values.total() for _, values in ordered[_SHOWN:]):
        reasons.append(f"others ({rest:,})")
    option, served = max(_elsewhere(manifest, arch, needs, examples), key=lambda item: item[1], default=("", 0))
    return ", ".join(reasons) + (f"; {option} serves {served:,} of the {len(problems):,}" if served else "")


def _need(problem: Problem) -> tuple[Any, ...]:
    """The values of key fields that decide which kernels serve a problem: thousands of problems have the same."""
    return (*needed_values(problem).items(),)


def _reason(field: str, values: Counter[str]) -> str:
    names = [value for value, _ in values.most_common()]
    if {*names} <= {"True", "False"}:
        return " or ".join(field if name == "True" else f"no {field}" for name in names)
    *first, last = names if len(names) <= _SHOWN else [*names[: _SHOWN - 1], "others"]
    return _WORDS.get(field, f"{field} {{}}").format(" and ".join(filter(None, (", ".join(first), last))))


def _elsewhere(
    manifest: Manifest, arch: str, needs: Mapping[tuple[Any, ...], int], examples: Mapping[tuple[Any, ...], Problem]
) -> list[tuple[str, int]]:
    """The options that build more kernels, each with the number of problems that these serve."""
    own = f"--upstream {manifest.upstream} --tier full"
    choices: dict[str, list[Key]] = {own: _keys(manifest.dialect, arch, manifest.mask_impl, "full")}
    for name, upstream in upstreams().items():
        if name != manifest.upstream:
            choices[f"--upstream {name}"] = _keys(upstream.dialect, arch, manifest.mask_impl, "smoke")
    return [
        (option, sum(count for need, count in needs.items() if not missing_kernel(keys, examples[need])))
        for option, keys in choices.items()
        if keys
    ]


def _keys(name: str, arch: str, mask_impl: str, tier: str) -> list[Key]:
    """The kernels of a dialect's batch prefill; none for an arch that it lacks."""
    chosen = dialect(name)
    if arch not in chosen.family(DEFAULT_FAMILY).archs:
        return []
    return select(chosen, Selection(archs=(arch,), mask_impl=mask_impl, tier=tier))

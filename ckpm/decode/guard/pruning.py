"""The guard inside of Triton's autotuner: a configuration that breaks a budget is never timed.

>>> tuned = triton.autotune(
...     configs,
...     key=["tokens"],
...     prune_configs_by={"early_config_prune": early_config_prune(kernel, KernelBudget(vgpr=128))},
... )(kernel)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ckpm.base.errors import CheckFailedError
from ckpm.decode.guard.candidates import JudgedCandidate, candidate
from ckpm.decode.guard.compiling import configuration_of, jit_function, judge
from ckpm.decode.guard.figures import KernelBudget

log = logging.getLogger(__name__)
_ALIGNED = 16


def early_config_prune(kernel: Any, budget: KernelBudget, arch: str = "") -> Callable[..., list[Any]]:
    """A callable for Triton's ``prune_configs_by``: it keeps the configurations that fit, and warns of the others.

    ``kernel`` is the result of ``triton.jit``. The default of ``arch`` is the arch of the GPU that Triton uses.

    The callable raises CheckFailedError if nothing fits, because Triton needs at least one configuration.
    """

    def prune(configs: Sequence[Any], named_args: Mapping[str, Any], **kwargs: Any) -> list[Any]:
        values = {**named_args, **kwargs}
        outcome = [_judge(kernel, config, values, budget, arch or current_arch()) for config in configs]
        pruned = [line for result in outcome for line in complaints(result)]
        kept = [config for config, result in zip(configs, outcome, strict=True) if result.fits]
        if not kept:
            raise CheckFailedError(
                "no configuration fits the budget: " + "; ".join(pruned) + ". Add smaller tiles, or raise the budget.",
                kind="over-budget",
            )
        for line in pruned:
            log.warning(line)
        return kept

    return prune


def complaints(judged: JudgedCandidate) -> list[str]:
    """The message about a configuration that doesn't fit, in a list; empty if it fits."""
    return [] if judged.fits else [f"pruned: {judged.candidate.description}: {'; '.join(judged.reasons)}"]


def _judge(kernel: Any, config: Any, values: Mapping[str, Any], budget: KernelBudget, arch: str) -> JudgedCandidate:
    function, chosen = jit_function(kernel), configuration_of(config)
    signature: dict[str, str] = {}
    constexprs: dict[str, Any] = {}
    for parameter in function.params:
        name = parameter.name
        if name in chosen or name not in values:
            continue
        kind = "constexpr" if parameter.is_constexpr else type_of(values[name])
        if kind == "constexpr":
            constexprs[name] = values[name]
        else:
            signature[name] = kind
    arguments = tuple(function.arg_names)
    return judge(kernel, candidate(function.__name__, arch, arguments, signature, constexprs, chosen), budget)


def type_of(value: Any) -> str:
    """An argument's type as Triton compiles it: ``:16`` marks a multiple of 16; None and 1 are constants."""
    from triton.runtime.jit import mangle_type

    kind = str(mangle_type(value, specialize=True))
    number = value.data_ptr() if hasattr(value, "data_ptr") else value
    return f"{kind}:{_ALIGNED}" if isinstance(number, int) and kind != "constexpr" and number % _ALIGNED == 0 else kind


def current_arch() -> str:
    """The arch of the GPU that Triton uses."""
    from triton.runtime import driver

    return str(driver.active.get_current_target().arch).partition(":")[0]

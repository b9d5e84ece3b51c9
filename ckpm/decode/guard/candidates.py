"""Configurations of a Triton kernel, identified by function, arch, types, constants and launch options.

The name that a compiler gives a kernel does not count, because it changes with Triton's version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ckpm.decode.guard.figures import Figures

Constant = int | float | str | bool | None
# options of a launch that are not arguments of a kernel, with Triton's defaults on AMD's GPUs
LAUNCH_OPTIONS: Mapping[str, Constant] = {"num_warps": 4, "num_stages": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One configuration of ``kernel`` for one arch.

    ``signature`` has the type of each argument that is not a constant, as Triton writes it: ``*bf16``, ``i32``. A type
    that ends with ``:16`` is of an address or value that is a multiple of 16. ``options`` are num_warps and such.
    """

    kernel: str
    arch: str
    signature: Mapping[str, str]
    constexprs: Mapping[str, Constant]
    options: Mapping[str, Constant]

    @property
    def identity(self) -> str:
        """The candidate as text, equal for equal candidates whatever the order of their members."""
        return json.dumps(tuple(self.members().values()), sort_keys=True)

    def members(self) -> dict[str, Any]:
        """The fields as JSON has them. A constant of another kind, such as a dtype, is its text."""
        constants = {
            name: value if isinstance(value, Constant) else str(value) for name, value in self.constexprs.items()
        }
        return {
            "kernel": self.kernel,
            "arch": self.arch,
            "signature": dict(self.signature),
            "constexprs": constants,
            "options": dict(self.options),
        }

    @property
    def description(self) -> str:
        """Kernel, arch, types of arguments, constants and options, for people."""
        chosen = {**self.constexprs, **self.options}
        types = ",".join(dict.fromkeys(self.signature.values()))
        return f"{self.kernel} {self.arch} ({types}) " + " ".join(f"{name}={value}" for name, value in chosen.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedCandidate:
    """A candidate with its figures (None if it doesn't compile) and the reasons to prune it (none if it fits)."""

    candidate: Candidate
    figures: Figures | None
    reasons: tuple[str, ...] = field(default=())

    @property
    def fits(self) -> bool:
        return not self.reasons


def candidate(
    kernel: str,
    arch: str,
    arguments: tuple[str, ...],
    signature: Mapping[str, str],
    constexprs: Mapping[str, Constant],
    configuration: Mapping[str, Constant],
) -> Candidate:
    """Make a kernel's candidate. Members of the configuration that are ``arguments`` are constants, others options."""
    inside = {name: value for name, value in configuration.items() if name in arguments}
    outside = {name: value for name, value in configuration.items() if name not in arguments}
    return Candidate(
        kernel=kernel,
        arch=arch,
        signature=signature,
        constexprs={**constexprs, **inside},
        options={**LAUNCH_OPTIONS, **outside},
    )

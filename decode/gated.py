"""The problems of perf-gate for the decode kernels, as data: each form on problems of one sequence."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from ckpm.decode.guard.candidates import Candidate
from ckpm.decode.problem import RESIDENT, Launch, Shape, attention_candidate, forced_launch, reduction_candidate

TOKENS = 4096  # of the one sequence
BASE = Shape(heads_kv=1, heads_q=8, head_dim=128, groups=4, splits=8, page_size=0, stored="fp8")
_SHAPES = {
    "fp8": {},
    "int8": {"stored": "int8"},
    "page1": {"page_size": 1},
    "page16": {"page_size": 16},
    "page64": {"page_size": 64},
    "d64": {"head_dim": 64, "groups": 2},
    "d256": {"head_dim": 256, "groups": 8},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A form of the kernels on a shape; ``name`` is what the gate's figures are known by."""

    name: str
    form: str
    shape: Shape
    launch: Launch

    def candidates(self, arch: str) -> tuple[Candidate, Candidate]:
        """The two kernels to compile: the attention and the reduction."""
        return attention_candidate(self.form, self.shape, self.launch, arch), reduction_candidate(self.shape, arch)


def problems(arch: str) -> tuple[Problem, ...]:
    """Streaming on every kind of cache, then the bad example on the first."""
    shapes = {name: dataclasses.replace(BASE, **changes) for name, changes in _SHAPES.items()}  # type: ignore[arg-type]
    streaming = [
        Problem(name=f"streaming-{name}", form="streaming", shape=shape, launch=forced_launch(arch, shape))
        for name, shape in shapes.items()
    ]
    return (*streaming, Problem(name="resident-fp8", form="resident", shape=BASE, launch=RESIDENT))

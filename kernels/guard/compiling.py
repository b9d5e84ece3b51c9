"""Triton kernels compiled for an arch on a machine without a GPU, and what their code objects say."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.code.code_object import kernels
from kernels.guard.candidates import Candidate, Constant, Judged
from kernels.guard.errors import KernelFileError
from kernels.guard.figures import Budget, figures_of, over_budget
from kernels.guard.packages import demand_triton
from matrix.base.display import one_line

_LANES = 64
_LONGEST = 200  # characters of a compiler's complaint


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """A compiled candidate: the code object, the name of its kernel and the bytes of LDS that a launch gives it."""

    binary: bytes
    symbol: str
    lds_bytes: int


def function_of(file: Path, name: str) -> Any:
    """The kernel of a file: a JITFunction, or an Autotuner over one.

    The file is run, as an import of it would.

    Raises:
        TritonMissingError: Triton is not installed.
        KernelFileError: the file can't be run, or the name is no Triton kernel of it.
    """
    demand_triton()
    import triton

    spec = importlib.util.spec_from_file_location(f"guarded_{file.stem}", file)
    if spec is None or spec.loader is None or not file.is_file():
        raise KernelFileError(f"{file}: no Python file. Name a file with Triton kernels.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the file does
        raise KernelFileError(
            f"{file}: can't be run: {type(error).__name__}: {one_line(str(error), _LONGEST)}. Run it with Python alone."
        ) from error
    function = getattr(module, name, None)
    if not isinstance(jitted(function), triton.JITFunction):
        raise KernelFileError(f"{file}: '{name}' is no Triton kernel of this file: write @triton.jit above it.")
    return function


def jitted(function: Any) -> Any:
    """The JITFunction below an autotuner's, and below heuristics."""
    while hasattr(function, "fn") and hasattr(function.fn, "arg_names"):
        function = function.fn
    return function


def configurations(function: Any) -> tuple[Mapping[str, Constant], ...]:
    """What a kernel's autotuner chooses from; nothing if it has none."""
    return tuple(configuration_of(one) for one in getattr(function, "configs", ()))


def configuration_of(config: Any) -> Mapping[str, Constant]:
    """Constants and launch options of a triton.Config."""
    chosen = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    return {**config.kwargs, **{name: value for name, value in chosen.items() if value is not None}}


def compiled(function: Any, candidate: Candidate) -> Code:
    """Raises KernelFileError: Triton refuses it, or types and constants are not those of the kernel's arguments."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = jitted(function)
    names = list(kernel.arg_names)
    if missing := [name for name in names if name not in candidate.signature and name not in candidate.constexprs]:
        raise KernelFileError(f"{candidate.kernel}: no type and no constant for {', '.join(missing)}. Add them.")
    if unknown := [name for name in (*candidate.signature, *candidate.constexprs) if name not in names]:
        raise KernelFileError(f"{candidate.kernel}: it has no argument {', '.join(unknown)}. Take them away.")
    kinds = {name: candidate.signature.get(name, "constexpr").partition(":") for name in names}
    source = ASTSource(
        kernel,
        {name: kind for name, (kind, _, _) in kinds.items()},
        dict(candidate.constexprs),
        {(at,): [["tt.divisibility", int(multiple)]] for at, (_, _, multiple) in enumerate(kinds.values()) if multiple},
    )
    options = {"enable_fp_fusion": True, **candidate.options}
    try:
        result = triton.compile(source, target=GPUTarget("hip", candidate.arch, _LANES), options=options)
    except Exception as error:  # of Triton's many kinds, and of the Python that it runs
        why = one_line(str(error).strip().rpartition("\n")[2] or type(error).__name__, _LONGEST)
        raise KernelFileError(f"{candidate.words}: doesn't compile: {why}") from error
    return Code(binary=result.asm["hsaco"], symbol=result.metadata.name, lds_bytes=int(result.metadata.shared))


def judge(function: Any, candidate: Candidate, budget: Budget) -> Judged:
    """Compile a candidate and hold its figures against the budget. One that doesn't compile has that as its reason."""
    return judged_code(candidate, budget, lambda: compiled(function, candidate))


def judged_code(candidate: Candidate, budget: Budget, compiling: Callable[[], Code]) -> Judged:
    """As :func:`judge`, with what compiles."""
    try:
        code = compiling()
    except KernelFileError as error:
        return Judged(candidate=candidate, figures=None, reasons=(str(error),))
    (kernel,) = kernels(code.binary)
    warps = candidate.options["num_warps"]
    assert isinstance(warps, int)
    figures = figures_of(kernel, arch=candidate.arch, warps=warps, lds_bytes=code.lds_bytes)
    return Judged(candidate=candidate, figures=figures, reasons=over_budget(figures, budget))

"""Compile Triton kernels for an arch on a machine without a GPU, and judge their code objects."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from ckpm.base.display import one_line
from ckpm.base.errors import InputError, SetupError
from ckpm.base.paths import data
from ckpm.decode.guard.candidates import Candidate, Constant, JudgedCandidate
from ckpm.decode.guard.figures import KernelBudget, figures_of, over_budget

_LANES = 64
_LONGEST = 200  # characters of a compiler's complaint


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """A compiled candidate: the code object, the name of its kernel and the bytes of LDS that a launch gives it."""

    binary: bytes
    symbol: str
    lds_bytes: int


def function_of(file: Path, name: str) -> Any:
    """The kernel of a file: a JITFunction, or an Autotuner over one."""
    function = getattr(module_of(file), name, None)
    if not is_kernel(function):
        raise InputError(
            f"{file}: '{name}' is not a Triton kernel of this file: write @triton.jit above it.", kind="kernel-file"
        )
    return function


def module_of(file: Path) -> ModuleType:
    """Run a file as an import does. A file that hasn't changed is not run again."""
    demand_triton()
    if not file.is_file():
        raise InputError(f"{file}: no such file. Name a Python file with Triton kernels.", kind="kernel-file")
    state = file.stat()
    return _run(file.resolve(), state.st_mtime_ns, state.st_size)


@cache
def _run(file: Path, changed: int, size: int) -> ModuleType:
    """Run a file. ``changed`` and ``size`` are its own, as keys of the cache."""
    spec = importlib.util.spec_from_file_location(f"guarded_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise InputError(f"{file}: no Python file. Name a file with Triton kernels.", kind="kernel-file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(file.parent))  # its neighbours, as for `python FILE`
    writing, sys.dont_write_bytecode = (
        sys.dont_write_bytecode,
        True,
    )  # bytecode of the same second would be taken for it
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        raise InputError(
            f"{file}: imports {error.name}, which is not installed here. Install it, or move the kernels into a file "
            "that imports Triton alone.",
            kind="kernel-file",
        ) from error
    except SystemExit as error:
        raise InputError(
            f"{file}: ends the process when it is imported (exit code {error.code}). "
            "Put what runs it below: if __name__ == '__main__'",
            kind="kernel-file",
        ) from error
    except Exception as error:  # whatever the file does
        raise InputError(
            f"{file}: can't be run: {type(error).__name__}: {one_line(str(error), _LONGEST)}. "
            "Run it with Python alone.",
            kind="kernel-file",
        ) from error
    finally:
        sys.path.remove(str(file.parent))
        sys.dont_write_bytecode = writing
    return module


def is_kernel(value: Any) -> bool:
    """True for a JITFunction, and for an autotuner or heuristics over one."""
    import triton

    return isinstance(jit_function(value), triton.JITFunction)


def jit_function(function: Any) -> Any:
    """The JITFunction below an autotuner and heuristics."""
    *_, innermost = _layers(function)
    return innermost


def _layers(function: Any) -> Iterator[Any]:
    """The objects that a kernel's decorators return, from the outermost to the JITFunction."""
    yield function
    while hasattr(function, "fn") and hasattr(function.fn, "arg_names"):
        function = function.fn
        yield function


def configurations(function: Any) -> tuple[Mapping[str, Constant], ...]:
    """The configurations of a kernel's autotuner, also below heuristics; empty without one."""
    configs = (layer.configs for layer in _layers(function) if hasattr(layer, "configs"))
    return tuple(configuration_of(config) for config in next(configs, ()))


def configuration_of(config: Any) -> Mapping[str, Constant]:
    """Constants and launch options of a triton.Config."""
    chosen = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    return {**config.kwargs, **{name: value for name, value in chosen.items() if value is not None}}


def compile_candidate(function: Any, candidate: Candidate) -> Code:
    """Compile a candidate.

    Raises InputError: Triton refuses it, or types and constants don't fit the arguments.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = jit_function(function)
    names = list(kernel.arg_names)
    defaults = {each.name: each.default for each in kernel.params if each.is_constexpr and each.has_default}
    constexprs = {**defaults, **candidate.constexprs}
    if missing := [name for name in names if name not in candidate.signature and name not in constexprs]:
        raise InputError(
            f"{candidate.kernel}: no type and no constant for {', '.join(missing)}. Add them.", kind="kernel-file"
        )
    if unknown := [name for name in (*candidate.signature, *candidate.constexprs) if name not in names]:
        raise InputError(
            f"{candidate.kernel}: it has no argument {', '.join(unknown)}. Take them away.", kind="kernel-file"
        )
    kinds = {name: candidate.signature.get(name, "constexpr").partition(":") for name in names}
    source = ASTSource(
        kernel,
        {name: kind for name, (kind, _, _) in kinds.items()},
        constexprs,
        {(at,): [["tt.divisibility", int(multiple)]] for at, (_, _, multiple) in enumerate(kinds.values()) if multiple},
    )
    options = {"enable_fp_fusion": True, **candidate.options}
    try:
        result = triton.compile(source, target=GPUTarget("hip", candidate.arch, _LANES), options=options)
    except Exception as error:  # of Triton's many kinds, and of the Python that it runs
        raise InputError(f"{candidate.description}: doesn't compile: {_why(error)}", kind="kernel-file") from error
    return Code(binary=result.asm["hsaco"], symbol=result.metadata.name, lds_bytes=int(result.metadata.shared))


def _why(error: BaseException) -> str:
    """The last line of the first error: an error in a function that the kernel calls causes others."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip().strip("^")]
    return one_line(lines[-1] if lines else type(error).__name__, _LONGEST)


def judge(function: Any, candidate: Candidate, budget: KernelBudget) -> JudgedCandidate:
    """Compile a candidate and compare its figures with the budget. A failure to compile is a reason, too."""
    try:
        code = compile_candidate(function, candidate)
    except InputError as error:
        return JudgedCandidate(candidate=candidate, figures=None, reasons=(str(error),))
    warps = candidate.options["num_warps"]
    assert isinstance(warps, int)
    figures = figures_of(code.binary, arch=candidate.arch, warps=warps, lds_bytes=code.lds_bytes)
    return JudgedCandidate(candidate=candidate, figures=figures, reasons=over_budget(figures, budget))


REQUIREMENTS = data("requirements-triton.txt")


def demand_triton() -> None:
    """Raise SetupError unless Triton is installed. It compiles for AMD's GPUs without a GPU, ROCm or torch."""
    if importlib.util.find_spec("triton") is None:
        where = "" if REQUIREMENTS.is_file() else " (the file is in the repository)"
        raise SetupError(
            "Triton kernels are compiled by Triton, which is not installed here. "
            f"Install it into this environment: pip install --require-hashes -r {REQUIREMENTS.name}{where}",
            kind="triton",
        )

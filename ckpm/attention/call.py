"""``fmha``: one attention call from arrays to arrays, by registered kernels."""

from __future__ import annotations

import functools
import importlib.util
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.alibi import lse_shift, shifts_lse
from ckpm.attention.arrays.options import Options
from ckpm.attention.arrays.posing import Posed, pose, sequence_lengths
from ckpm.attention.arrays.pytorch import (
    current_stream,
    dtype_of,
    empty_like,
    in_gpu_memory,
    on_gpu,
    padded_list,
    single_precision,
)
from ckpm.attention.arrays.tensors import WORDS, Operand, demand_dtype, demand_shape, demand_writable, operand
from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.launch.device import Device, choose
from ckpm.attention.launch.encodings import number_type
from ckpm.attention.launch.launching import host_buffers, upload
from ckpm.attention.launch.plan import UNTIMED, FinishedLaunch, LaunchPlan, Timing
from ckpm.attention.plan_cache import Kept, find_kept, find_posed
from ckpm.attention.registry import Registry
from ckpm.base import paths, rocm_places
from ckpm.base.errors import ArgumentError, DeviceError, NoKernelError
from ckpm.base.rocm_choice import default_device
from ckpm.kernels.families.libraries import build_command
from ckpm.kernels.library.request import LIBRARY
from ckpm.matrix.dialects import compute_units
from ckpm.matrix.options import DEFAULT_ARCH, DEFAULT_UPSTREAM
from ckpm.matrix.problems.problem import Problem

_DEFAULTS: dict[str, Dispatcher] = {}
_LOCK = threading.Lock()
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Attention:
    """Results of a call. ``o`` has Q's axes and dtype, but the kernel's output dtype if Q has fp8 bits.

    ``lse`` has base e, and lies as [batch, head, query] or [head, token]. ``random_values`` of dropout lie as [batch,
    head, query, key] or [head, token, key]. All are tensors of PyTorch if Q is one, or the caller's own output arrays.
    On the device ``lse`` is the kernel's: with ALiBi under a causal mask it is shifted. Then subtract
    ckpm.attention.alibi.lse_shift.
    """

    o: Any
    lse: Any = None
    random_values: Any = None
    problem: Problem
    ran: FinishedLaunch


def default(arch: str = "", *, beside: Any = None) -> Dispatcher:
    """Return the default dispatcher: every library of the first folder with one, on the emulator.

    They run on the machine's GPU if CKPM_ROCM is 1, if the array ``beside`` is in a GPU's memory, or if an earlier call
    ran there.

    The folders are build/<arch> in the current folder, build/<arch> in the clone, and <arch> in the installed package
    ``ckpm_libraries``. The default arch is the arch of the GPU, or gfx950.

    Raises:
        NoKernelError: no folder has a library.
        DeviceError: ``beside`` is in a GPU's memory, and the process runs on the emulator.
        An error of ckpm.base.errors: see Registry.add_library and ckpm.attention.launch.device.choose.
    """
    with _LOCK:
        kinds = {dispatcher.device.kind for dispatcher in _DEFAULTS.values()}
        kind = "hip" if in_gpu_memory(beside) or "hip" in kinds else default_device()
        if kinds - {kind}:
            raise DeviceError(
                "the array is in a GPU's memory, and earlier calls of this process ran on the emulator: a process has "
                "one device. Set CKPM_ROCM=1 before it starts, or give dispatcher=."
            )
        arch = arch or (_arch_here() if kind == "hip" else DEFAULT_ARCH)
        if arch not in _DEFAULTS:
            registry = Registry()
            folders = _folders(arch)
            library_lists = (libraries for folder in folders if (libraries := sorted(folder.glob(f"*/{LIBRARY}"))))
            for library in next(library_lists, []):
                registry.add_library(library)
            if not len(registry):
                raise NoKernelError(
                    f"no library is in {' or in '.join(map(str, dict.fromkeys(folders)))}. Build one: "
                    f"{build_command((arch,), DEFAULT_UPSTREAM)}; or install ckpm-libraries; or give dispatcher=, with "
                    "a library from elsewhere."
                )
            _DEFAULTS[arch] = Dispatcher(registry, choose(kind, arch))
        return _DEFAULTS[arch]


@functools.cache
def _arch_here() -> str:
    """The arch of the first GPU that libraries are built for; without one the default arch of builds."""
    return next((arch for arch in rocm_places.gpu_archs() if arch in compute_units()), DEFAULT_ARCH)


def _folders(arch: str) -> list[Path]:
    """Folders that may contain libraries of an arch: of the current folder, of the clone, of ``ckpm_libraries``."""
    tops = (Path(), *(() if paths.INSTALLED else (paths.PROJECT,)))
    prebuilt = importlib.util.find_spec("ckpm_libraries")
    packages = prebuilt.submodule_search_locations or [] if prebuilt else []
    return [*(top.absolute() / "build" / arch for top in tops), *(Path(package) / arch for package in packages)]


def fmha(
    q: Any,
    k: Any,
    v: Any,
    *,
    dispatcher: Dispatcher | None = None,
    out: Any = None,
    lse_out: Any = None,
    stream: int = 0,
    timing: Timing = UNTIMED,
    **options: Any,
) -> Attention:
    """Compute softmax(Q K^T * scale) V of each sequence.

    ckpm.attention.arrays.posing describes the arrays, ckpm.attention.arrays.options.Options the options. Without a
    ``dispatcher`` the call takes :func:`default`'s: on the emulator, unless CKPM_ROCM is 1 or Q is in a GPU's memory.

    Host arrays are copied to the device and back. Floats are encoded in ``dtype``, and O comes in Q's dtype. For Q of
    fp8 bits O has the kernel's output dtype. Arrays on the device are used in place.

    Results are written to ``out`` and ``lse_out``. Without these, and if Q is a tensor of PyTorch, outputs are
    allocated on Q's device. The call then returns when the launch is queued on ``stream``, by default PyTorch's current
    stream. ``out`` has the kernel's dtype, or float32 or float64 on the host. Gradients don't flow through the call.

    Raises:
        TypeError: an option doesn't exist.
        HipError: memory ran out.
        An error of ckpm.base.errors: see Dispatcher.plan and Plan.run.
    """
    dispatcher = dispatcher if dispatcher is not None else default(beside=q)
    stream = stream or current_stream(q)
    in_place = dispatcher.device.kind == "hip" and on_gpu(q)
    options = _as_read(dispatcher, q, options)
    if in_place and (match := find_kept(dispatcher, {"q": q, "k": k, "v": v, **options}, _outputs_to_keep)) is not None:
        kept, tensors = match
        if timing is UNTIMED and lse_out is None:
            return _run_kept(kept, tensors, q, out, stream)
        outputs = _outputs(kept.plan, kept.posed, q, out, lse_out)
        return _call_on_device(
            kept.plan, kept.posed.problem, kept.pointers(tensors), outputs, (out, lse_out), stream, timing
        )
    return _pose_and_run(dispatcher, (q, k, v), options, (out, lse_out), stream, timing)


def _as_read(dispatcher: Dispatcher, q: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Convert sink logits on a GPU to float32, and append zeros to a page list if kernels read ahead."""
    pages, sinks = options.get("pages"), options.get("sink_logits")
    if sinks is not None and on_gpu(q):
        options = {**options, "sink_logits": single_precision(sinks, q)}
    if pages is not None and (indices := pad_list(dispatcher, pages.indices)) is not pages.indices:
        options = {**options, "pages": replace(pages, indices=indices)}
    return options


def pad_list(dispatcher: Dispatcher, pages: Any) -> Any:
    """Append zeros to a page list of PyTorch on its GPU if registered kernels read ahead.

    Other tables are returned unchanged.
    """
    return padded_list(pages) if dispatcher.reads_ahead else pages


def fmha_of(
    pose_call: Callable[[Sequence[Any], Any], tuple[Sequence[Any], dict[str, Any]]],
    tensors: Sequence[Any],
    numbers: Any,
    *,
    dispatcher: Dispatcher | None = None,
    out: Any = None,
    **more_options: Any,
) -> Attention:
    """Call :func:`fmha` with the Q, K, V and options that ``pose_call`` makes of a caller's tensors and numbers.

    For tensors of PyTorch on a GPU a kept plan is looked up by the caller's own arguments, without posing the call.
    """
    q = tensors[0]
    dispatcher = dispatcher if dispatcher is not None else default(beside=q)
    in_place = not more_options and dispatcher.device.kind == "hip" and on_gpu(q)
    if in_place and (kept := find_posed(dispatcher, pose_call, tensors, numbers, _outputs_to_keep)) is not None:
        return _run_kept(kept, tensors, q, out, current_stream(q))
    (q, k, v), options = pose_call(tensors, numbers)
    if in_place:  # of a call that has to be posed each time
        return _pose_and_run(dispatcher, (q, k, v), options, (out, None), current_stream(q), UNTIMED)
    return fmha(q, k, v, dispatcher=dispatcher, out=out, **options, **more_options)


def _outputs_to_keep(plan: LaunchPlan, posed: Posed) -> tuple[Sequence[str], Any]:
    """Names of the outputs; and names, shapes and PyTorch's dtypes."""
    shapes = _shapes(posed.problem)
    return tuple(plan.outputs), [(name, shapes[name], dtype_of(_dtype(posed, name))) for name in plan.outputs]


def _run_kept(kept: Kept, tensors: Sequence[Any], q: Any, out: Any, stream: int) -> Attention:
    """Launch a kept plan."""
    p, pointers = kept.posed.problem, kept.addresses(tensors)
    outputs: dict[str, Any] = {}
    for name, shape, dtype in kept.o:
        outputs[name] = tensor = out if name == "o" and out is not None else q.new_empty(shape, dtype=dtype)
        if tensor is out and not _fits(out, q, shape, dtype):
            pointers.append(_target(kept.plan.device, p, name, out).address)  # raises, or takes bits of the dtype
        else:
            pointers.append(tensor.data_ptr())
    if not p.rows_q:
        return _attention(outputs, p, FinishedLaunch(kernels=()))
    kept.run(pointers, stream)
    return _attention(outputs, p, FinishedLaunch(kernels=kept.plan.library.selected_kernels()))


def _fits(out: Any, q: Any, shape: tuple[int, ...], dtype: Any) -> bool:
    """True if ``out`` can be written in place: it has the output's shape and dtype, and is on Q's GPU."""
    try:
        return out.shape == shape and out.dtype is dtype and out.is_contiguous() and out.get_device() == q.get_device()
    except AttributeError:  # no tensor of PyTorch
        return False


def _pose_and_run(
    dispatcher: Dispatcher,
    arrays: Sequence[Any],
    options: dict[str, Any],
    outs: tuple[Any, Any],
    stream: int,
    timing: Timing,
) -> Attention:
    q, k, v = arrays
    out, lse_out = outs
    posed = pose(dispatcher.device, q, k, v, Options(**options))
    plan = dispatcher.plan(posed.problem)
    outputs = _outputs(plan, posed, q, out, lse_out)
    if posed.on_device:
        pointers = {name: posed.inputs[name].address + posed.offset(name) for name in plan.inputs}
        return _call_on_device(plan, posed.problem, pointers, outputs, (out, lse_out), stream, timing)
    return uploaded_call(plan, posed, outputs, stream, timing)


def _outputs(plan: LaunchPlan, posed: Posed, q: Any, out: Any, lse_out: Any) -> dict[str, Any]:
    """Outputs by the C ABI's names: the caller's, or new tensors of PyTorch on Q's device; None without either."""
    if lse_out is not None and not posed.problem.lse:
        raise ArgumentError("lse_out is written with lse=True only.", kind="null")
    caller_outputs = {"o": out, "lse": lse_out}
    shapes = _shapes(posed.problem)
    return {
        name: caller_outputs.get(name)
        if caller_outputs.get(name) is not None
        else empty_like(q, shapes[name], _dtype(posed, name))
        for name in plan.outputs
    }


def _dtype(posed: Posed, name: str) -> str:
    """The word of the dtype of an output that the call allocates. O has Q's dtype."""
    if name != "o":
        return {"lse": "fp32", "rand_val": "bits8"}[name]
    if posed.floats is not None:
        return WORDS[posed.floats.name]
    return "bits16" if posed.inputs["q"].dtype == "bits16" else posed.problem.o_dtype


def _call_on_device(
    plan: LaunchPlan,
    problem: Problem,
    inputs: Mapping[str, int],
    outputs: Mapping[str, Any],
    caller_outputs: tuple[Any, Any],
    stream: int,
    timing: Timing,
) -> Attention:
    """Run a plan on arrays on the device. Only the caller's own outputs are checked."""
    pointers = dict(inputs)
    for name in plan.outputs:
        output = outputs[name]
        if output is None:
            raise ArgumentError(
                f"{name} needs memory on the device that the call can write to: give out, lse_out.", kind="null"
            )
        checked = any(output is caller_output for caller_output in caller_outputs)
        pointers[name] = _target(plan.device, problem, name, output).address if checked else output.data_ptr()
    ran = plan.run(pointers, stream=stream, timing=timing) if problem.rows_q else FinishedLaunch(kernels=())
    return _attention(outputs, problem, ran)


def _target(device: Device, p: Problem, name: str, array: Any) -> Operand:
    """The operand of an output, checked for shape, dtype, contiguity and write access."""
    target = operand({"o": "out", "lse": "lse_out"}.get(name, name), array, device)
    demand_shape(target, _shapes(p)[name])
    if name == "lse" or (name == "o" and (target.on_device or target.dtype not in ("fp32", "fp64"))):
        demand_dtype(target, "fp32" if name == "lse" else p.o_dtype)
    demand_writable(target)
    return target


def uploaded_call(
    plan: LaunchPlan, posed: Posed, caller_outputs: Mapping[str, Any], stream: int, timing: Timing
) -> Attention:
    """Run a plan with arrays of the host. LSE is returned without the kernel's shift (:func:`shift_of`)."""
    p, hip = posed.problem, plan.device.hip
    outputs = {name: caller_outputs.get(name) for name in plan.outputs}
    outputs = {name: _new(posed, name) if output is None else output for name, output in outputs.items()}
    targets = {name: _target(plan.device, p, name, output) for name, output in outputs.items()}
    arrays: dict[str, NDArray[Any]] = {}
    for name in plan.inputs:
        array = posed.inputs[name].array
        assert array is not None, "all are on the host"
        arrays[name] = array
    if not p.rows_q:  # no grid has 0 workgroups
        return _attention(outputs, p, FinishedLaunch(kernels=()))
    with upload(plan.device, host_buffers(arrays, plan.outputs)) as memory:
        ran = plan.run({n: part.address + posed.offset(n) for n, part in memory.items()}, stream=stream, timing=timing)
        plan.finish()
        for name, target in targets.items():
            assert target.array is not None, "all are on the host"
            kind = number_type(p.o_dtype, p.arch) if name == "o" else target.array.dtype
            numbers = hip.read(memory[name], kind, target.shape)
            if name == "lse" and shifts_lse(p):
                numbers = (numbers - shift_of(posed)).astype(np.float32)
            _write(target.array, numbers)
    return _attention(outputs, p, ran)


def shift_of(posed: Posed) -> NDArray[np.float64]:
    """The shift of a kernel's LSE for arrays of the host (:func:`ckpm.attention.alibi.lse_shift`)."""
    slopes = posed.inputs["bias"].array
    assert slopes is not None, "all are on the host"
    return lse_shift(posed.problem, slopes, sequence_lengths(posed))


def _write(target: NDArray[Any], numbers: NDArray[Any]) -> None:
    """Write numbers into an array: their bits if its elements have the same size, else their values."""
    same = target.itemsize == numbers.itemsize
    target[...] = numbers.view(target.dtype) if same else numbers.astype(target.dtype)


def _new(posed: Posed, name: str) -> NDArray[Any]:
    word = _dtype(posed, name)
    kind = {"bits16": np.uint16, "bits8": np.uint8, "fp64": np.float64}.get(word) or number_type(word, "")
    return np.empty(_shapes(posed.problem)[name], kind)


def _attention(outputs: Mapping[str, Any], p: Problem, ran: FinishedLaunch) -> Attention:
    if _LOG.isEnabledFor(logging.DEBUG):
        _LOG.debug("%s ran", ", ".join(ran.kernels) or "no kernel")
    more = {name: outputs.get(key) for name, key in (("lse", "lse"), ("random_values", "rand_val"))}
    return Attention(o=outputs["o"], **more, problem=p, ran=ran)


def _shapes(p: Problem) -> dict[str, tuple[int, ...]]:
    """Shapes of the outputs, by the C ABI's names."""
    return {"o": o_shape(p), "lse": lse_shape(p), "rand_val": (*lse_shape(p), p.seqlen_k)}


def o_shape(p: Problem) -> tuple[int, ...]:
    if p.mode == "group":
        return p.rows_q, p.nhead_q, p.hdim_v
    inner = (p.nhead_q, p.seqlen_q) if p.layout == "BHSD" else (p.seqlen_q, p.nhead_q)
    return p.batch, *inner, p.hdim_v


def lse_shape(p: Problem) -> tuple[int, ...]:
    return (p.nhead_q, p.rows_q) if p.mode == "group" else (p.batch, p.nhead_q, p.seqlen_q)

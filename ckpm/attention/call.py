"""``fmha``: one attention call from arrays to arrays, by registered kernels.

A call is posed (its arrays become a Problem and addresses), planned (a kernel is chosen) and run. With tensors of
PyTorch on their GPU it is kept (plan_cache.py): a later call with such tensors is only run.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, get_type_hints

import numpy as np
from numpy.typing import NDArray

from ckpm.attention.alibi import shifts_lse
from ckpm.attention.arrays.options import Options, Posing, as_given, is_plain, put_together, take_apart
from ckpm.attention.arrays.outputs import check_output, demand_apart, forms, shape_of, shift_of, word_of
from ckpm.attention.arrays.posing import Posed, pose
from ckpm.attention.arrays.pytorch import (
    are_together,
    current_stream,
    in_gpu_memory,
    is_like,
    new_like,
    on_gpu,
    padded_list,
    single_precision,
    span_of,
)
from ckpm.attention.arrays.tables import Pages
from ckpm.attention.arrays.tensors import operand
from ckpm.attention.dispatcher import Dispatcher
from ckpm.attention.launch.device import Device, choose
from ckpm.attention.launch.encodings import number_type
from ckpm.attention.launch.launching import host_buffers, upload
from ckpm.attention.launch.plan import UNTIMED, FinishedLaunch, LaunchPlan, Timing
from ckpm.attention.plan_cache import PlannedCall, read_addresses, stand_ins
from ckpm.attention.registry import Registry
from ckpm.base import paths, rocm_places, settings
from ckpm.base.errors import ArgumentError, DeviceError, LibraryError, NoKernelError, ProblemError, demand_type
from ckpm.base.rocm_choice import default_device
from ckpm.kernels.families.libraries import build_command
from ckpm.kernels.library.request import LIBRARY
from ckpm.matrix.dialects import compute_units
from ckpm.matrix.options import DEFAULT_ARCH, DEFAULT_UPSTREAM
from ckpm.matrix.problems.problem import Problem

BUILT: list[Path] = []  # build folders of this process's calls of ckpm.build, the latest first
_DEFAULTS: dict[str, Dispatcher] = {}  # by arch, until a build adds libraries
_DEVICES: dict[str, Device] = {}  # of all default dispatchers of the process
_LOCK = threading.Lock()
_LOG = logging.getLogger(__name__)
P = ParamSpec("P")
R = TypeVar("R")


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

    A library of other tables is left out with a warning.

    They run on the machine's GPU if CKPM_ROCM is 1, if the array ``beside`` is in a GPU's memory, or if an earlier call
    ran there.

    :func:`library_folders` lists the folders. The default arch is the arch of the GPU, or gfx950.

    Raises:
        NoKernelError: no folder has a library.
        LibraryError: all libraries of the folder are of other tables.
        DeviceError: ``beside`` is in a GPU's memory, and the process runs on the emulator.
        An error of ckpm.base.errors: see Registry.add_library and ckpm.attention.launch.device.choose.
    """
    with _LOCK:
        kinds = {device.kind for device in _DEVICES.values()}
        kind = "hip" if in_gpu_memory(beside) or "hip" in kinds else default_device()
        if kinds - {kind}:
            raise DeviceError(
                "the array is in a GPU's memory, and earlier calls of this process ran on the emulator: a process has "
                "one device. Set CKPM_ROCM=1 before it starts, or give dispatcher=."
            )
        arch = arch or (_arch_here() if kind == "hip" else DEFAULT_ARCH)
        if arch not in _DEFAULTS:
            folders = library_folders(arch)
            library_lists = (libraries for folder in folders if (libraries := sorted(folder.glob(f"*/{LIBRARY}"))))
            registry = _register(next(library_lists, []))
            if not len(registry):
                raise NoKernelError(_no_library(arch, folders))
            if arch not in _DEVICES:
                _DEVICES[arch] = choose(kind, arch)
            _DEFAULTS[arch] = Dispatcher(registry, _DEVICES[arch])
        return _DEFAULTS[arch]


def _register(libraries: Sequence[Path]) -> Registry:
    """Register the libraries. Those of other tables are left out with a warning, or raise their error if all are."""
    registry, errors = Registry(), list[LibraryError]()
    for library in libraries:
        try:
            registry.add_library(library)
        except LibraryError as error:
            if error.kind != "other-tables":
                raise
            errors.append(error)
    if errors and not len(registry):
        raise errors[0]
    for left_out in errors:
        _LOG.warning("calls leave out %s", left_out)
    return registry


def add_folder(folder: Path) -> None:
    """Let later calls take the libraries of a build folder before any others."""
    with _LOCK:
        BUILT.insert(0, folder)
        _DEFAULTS.clear()


@functools.cache
def _arch_here() -> str:
    """The arch of the first GPU that libraries are built for; without one the default arch of builds."""
    return next((arch for arch in rocm_places.gpu_archs() if arch in compute_units()), DEFAULT_ARCH)


def library_folders(arch: str = DEFAULT_ARCH) -> list[Path]:
    """List the folders that ``fmha`` searches for libraries of an arch; the first folder with a library is taken.

    They are the folders of this process's calls of ``ckpm.build``, CKPM_LIBRARIES, the clone's build/, and the
    installed package ``ckpm_libraries``. The current folder's build/ is not searched.
    """
    prebuilt = importlib.util.find_spec("ckpm_libraries")
    packages = prebuilt.submodule_search_locations or [] if prebuilt else []
    clone = () if paths.INSTALLED else (paths.PROJECT / "build",)
    return [folder / arch for folder in (*BUILT, *settings.libraries(), *clone, *map(Path, packages))]


def _no_library(arch: str, folders: Sequence[Path]) -> str:
    here = Path("build").absolute()
    near = [folder for named in settings.libraries() for folder in (named / "build", *named.parents)]
    build = next((folder for folder in (*near, here) if any((folder / arch).glob(f"*/{LIBRARY}"))), None)
    variable = f"CKPM_LIBRARIES={build or here}"
    remedy = f"Build one: {build_command((arch,), DEFAULT_UPSTREAM)}, with {variable} for what it writes in this folder"
    if build:
        remedy = f"Libraries are in {build / arch}: {variable} lets calls use them"
    searched = " or in ".join(map(str, folders))
    state = f"no library is in {searched}" if folders else "no folder is searched for libraries"
    wheel = "install the wheel ckpm-libraries of a release bundle"
    return f"{state}. {remedy}; or {wheel}; or give dispatcher=, with a library."


@dataclass(frozen=True, kw_only=True, eq=False)
class FmhaParameters(Options):
    """All parameters of fmha, for signatures alone: no call makes one."""

    q: Any = field(kw_only=False)
    k: Any = field(kw_only=False)
    v: Any = field(kw_only=False)
    dispatcher: Dispatcher | None = None
    out: Any = None
    lse_out: Any = None
    stream: int = 0
    timing: Timing = UNTIMED


def parameters_of(record: Callable[P, Any]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Show the fields of a record as parameters of a function: to help, editors and type checkers."""

    def describe(function: Callable[..., R]) -> Callable[P, R]:
        hints, result = get_type_hints(record), get_type_hints(function)["return"]
        parameters = inspect.signature(record).parameters.items()
        shown = [parameter.replace(annotation=hints[name]) for name, parameter in parameters]
        function.__signature__ = inspect.Signature(shown, return_annotation=result)  # type: ignore[attr-defined]
        return function

    return describe


@parameters_of(FmhaParameters)
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

    ckpm.attention.arrays.posing describes the arrays. Without a ``dispatcher`` the call takes :func:`default`'s: on the
    emulator, unless CKPM_ROCM is 1 or Q is in a GPU's memory.

    Host arrays are copied to the device and back. Floats are encoded in ``dtype``, and O comes in Q's dtype. For Q of
    fp8 bits O has the kernel's output dtype. Arrays on the device are used in place.

    Results are written to ``out`` and ``lse_out``. Without these, and if Q is a tensor of PyTorch, outputs are
    allocated on Q's device. The call then returns when the launch is queued on ``stream``, by default PyTorch's current
    stream. ``out`` has the kernel's dtype, or float32 or float64 on the host. The outputs must not overlap, and on the
    device neither may overlap an input. Gradients don't flow through the call.

    Raises:
        TypeError: an option doesn't exist.
        HipError: memory ran out.
        An error of ckpm.base.errors: see Dispatcher.plan and Plan.run.
    """
    if not isinstance(dispatcher, Dispatcher):
        if not _DEFAULTS:  # a wrong option is refused before a library is searched, which may have to be built first
            Options(**options)
        dispatcher = chosen(dispatcher, q)
    options = _as_read(dispatcher, q, options)
    if not _in_place(dispatcher, q):
        return fmha_of(
            as_given, (q, k, v), options, dispatcher=dispatcher, out=out, lse_out=lse_out, stream=stream, timing=timing
        )
    tensors, numbers = take_apart(q, k, v, options)
    return fmha_of(
        put_together, tensors, numbers, dispatcher=dispatcher, out=out, lse_out=lse_out, stream=stream, timing=timing
    )


fmha.__doc__ = f"{fmha.__doc__}\n    {Options.__doc__}"  # help(fmha) describes the options, too


def chosen(dispatcher: Dispatcher | None, q: Any) -> Dispatcher:
    """The caller's dispatcher, or the default one beside Q."""
    if dispatcher is None:
        return default(beside=q)
    demand_type("dispatcher", dispatcher, Dispatcher, "ckpm.Dispatcher(registry, device)")
    return dispatcher


def fmha_of(
    pose_call: Posing,
    tensors: Sequence[Any],
    numbers: Any,
    *,
    dispatcher: Dispatcher | None = None,
    out: Any = None,
    lse_out: Any = None,
    stream: int = 0,
    timing: Timing = UNTIMED,
    **more_options: Any,
) -> Attention:
    """Call :func:`fmha` with the Q, K, V and options that ``pose_call`` makes of a caller's tensors and numbers.

    Calls with tensors of PyTorch on a GPU are kept by the caller's own arguments. Such a call is not posed again.
    """
    q = tensors[0]
    if not isinstance(dispatcher, Dispatcher):
        dispatcher = chosen(dispatcher, q)
    if more_options:
        (q, k, v), options = pose_call(tensors, numbers)
        return fmha(
            q, k, v, dispatcher=dispatcher, out=out, lse_out=lse_out, stream=stream, timing=timing,
            **options, **more_options,
        )  # fmt: skip
    if not isinstance(stream, int):
        demand_type("stream", stream, int, "its address, such as torch.cuda.Stream().cuda_stream")
    outputs, stream = {"o": out, "lse": lse_out}, stream or current_stream(q)
    if _in_place(dispatcher, q) and (call := _find_call(dispatcher, pose_call, tensors, numbers)) is not None:
        return _run_in_place(call, tensors, outputs, stream, timing)
    arrays, options = pose_call(tensors, numbers)
    posed = pose(dispatcher.device, *arrays, Options(**options))
    plan = dispatcher.plan(posed.problem)
    plan.warn(on_device=posed.on_device)
    if not posed.on_device:
        return uploaded_call(plan, posed, _on_host(plan, posed, q, outputs), stream, timing)
    addresses = [posed.inputs[name].address + posed.offset(name) for name in plan.inputs]
    call = PlannedCall(plan, posed.problem, forms(posed, plan.outputs, q), lambda tensors: addresses)
    return _run_in_place(call, tensors, outputs, stream, timing)


def _in_place(dispatcher: Dispatcher, q: Any) -> bool:
    """True if kernels read the tensors of a call where PyTorch has them."""
    return dispatcher.device.kind == "hip" and on_gpu(q)


def _as_read(dispatcher: Dispatcher, q: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Convert sink logits on a GPU to float32, and append zeros to a page list if kernels read ahead."""
    pages, sinks = options.get("pages"), options.get("sink_logits")
    if sinks is not None and on_gpu(q):
        options = {**options, "sink_logits": single_precision(sinks, q)}
    if isinstance(pages, Pages) and (indices := pad_list(dispatcher, pages.indices)) is not pages.indices:
        options = {**options, "pages": replace(pages, indices=indices)}
    return options


def pad_list(dispatcher: Dispatcher, pages: Any) -> Any:
    """Append zeros to a page list of PyTorch on its GPU if registered kernels read ahead.

    Other tables are returned unchanged.
    """
    return padded_list(pages) if dispatcher.reads_ahead else pages


def _find_call(dispatcher: Dispatcher, pose_call: Posing, tensors: Sequence[Any], numbers: Any) -> PlannedCall | None:
    """The kept call of these tensors and numbers, or None for a call that is posed each time.

    A call is posed each time if it is refused, or if its arrays are not all tensors of one GPU. The same holds for
    inputs that are converted: scales that are numbers or have 16 bits.
    """
    key = pose_call, numbers
    try:
        call = dispatcher.cache.find_call(key, tensors)
    except TypeError:  # an array, which has no hash, or which PyTorch's guards refuse
        return None
    if call is not None:
        return call
    if not is_plain(numbers) or not are_together(tensors):
        return None

    def make() -> PlannedCall | None:
        try:
            arrays, options = pose_call(stand_ins(tensors), numbers)
            posed = pose(dispatcher.device, *arrays, Options(**options))
        except (ProblemError, KeyError):  # posing the tensors themselves converts them, or raises with their names
            return None
        plan = dispatcher.plan(posed.problem)
        plan.warn(on_device=True)
        return PlannedCall(plan, posed.problem, forms(posed, plan.outputs, tensors[0]), read_addresses(posed, plan))

    return dispatcher.cache.keep_call(key, tensors, make)


def _run_in_place(
    call: PlannedCall, tensors: Sequence[Any], caller_outputs: Mapping[str, Any], stream: int, timing: Timing
) -> Attention:
    """Launch with arrays on the device. Outputs that are not the caller's are tensors of PyTorch beside Q."""
    plan, problem, outputs_of_plan, addresses_of = call
    q, addresses, outputs = tensors[0], addresses_of(tensors), {}
    if caller_outputs["lse"] is not None:
        _demand_lse(problem, caller_outputs)
    for name, shape, dtype, like_q in outputs_of_plan:
        output = caller_outputs.get(name)
        if output is None:
            if dtype is None:
                raise ArgumentError(
                    f"{name} needs memory on the device that the call can write to: give out, lse_out.", kind="null"
                )
            output = new_like(q, shape, dtype, like_q)
            addresses.append(output.data_ptr())
        elif is_like(output, q, shape, dtype):
            addresses.append(output.data_ptr())
        else:  # bits of the dtype, or an array that is refused
            beside = operand("q", q, plan.device)
            addresses.append(check_output(plan.device, problem, name, output, beside).address)
        outputs[name] = output
    if caller_outputs["o"] is not None and caller_outputs["lse"] is not None:
        sizes = zip(addresses[len(plan.inputs) :], plan.outputs.values(), strict=True)
        demand_apart(dict(zip(plan.outputs, sizes, strict=True)))
    if not problem.rows_q:  # no grid has 0 workgroups
        ran = FinishedLaunch(kernels=())
    elif timing is UNTIMED:
        plan.queue(addresses, stream)
        ran = FinishedLaunch(kernels=plan.library.selected_kernels())
    else:
        pointers = dict(zip((*plan.inputs, *plan.outputs), addresses, strict=True))
        ran = plan.run(pointers, stream=stream, timing=timing)
    return _attention(outputs, problem, ran)


def _demand_lse(problem: Problem, caller_outputs: Mapping[str, Any]) -> None:
    if caller_outputs["lse"] is not None and not problem.lse:
        raise ArgumentError("lse_out is written with lse=True only.", kind="null")


def _on_host(plan: LaunchPlan, posed: Posed, q: Any, caller_outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs by name: the caller's, else a new tensor of PyTorch if Q is one, else None."""
    _demand_lse(posed.problem, caller_outputs)
    outputs = {name: caller_outputs.get(name) for name in plan.outputs}
    return outputs | {
        name: new_like(q, shape, dtype, like_q)
        for name, shape, dtype, like_q in forms(posed, plan.outputs, q)
        if outputs[name] is None and dtype is not None
    }


def uploaded_call(
    plan: LaunchPlan, posed: Posed, caller_outputs: Mapping[str, Any], stream: int, timing: Timing
) -> Attention:
    """Run a plan with arrays of the host. LSE is returned without the kernel's shift (:func:`shift_of`)."""
    p, hip = posed.problem, plan.device.hip
    outputs = {name: caller_outputs.get(name) for name in plan.outputs}
    outputs = {name: _new(posed, name) if output is None else output for name, output in outputs.items()}
    q = posed.inputs["q"]
    targets = {name: check_output(plan.device, p, name, output, q) for name, output in outputs.items()}
    demand_apart({name: span_of(target.array) for name, target in targets.items()})
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


def _write(target: NDArray[Any], numbers: NDArray[Any]) -> None:
    """Write numbers into an array: their bits if its elements have the same size, else their values."""
    same = target.itemsize == numbers.itemsize
    target[...] = numbers.view(target.dtype) if same else numbers.astype(target.dtype)


def _new(posed: Posed, name: str) -> NDArray[Any]:
    word = word_of(posed, name)
    kind = {"bits16": np.uint16, "bits8": np.uint8, "fp64": np.float64}.get(word) or number_type(word, "")
    return np.empty(shape_of(posed.problem, name), kind)


def _attention(outputs: Mapping[str, Any], p: Problem, ran: FinishedLaunch) -> Attention:
    if _LOG.isEnabledFor(logging.DEBUG):
        _LOG.debug("%s ran", ", ".join(ran.kernels) or "no kernel")
    more = {name: outputs.get(key) for name, key in (("lse", "lse"), ("random_values", "rand_val"))}
    return Attention(o=outputs["o"], **more, problem=p, ran=ran)

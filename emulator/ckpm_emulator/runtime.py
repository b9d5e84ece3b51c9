"""The core's shared library in this process: loading it, its C functions, and programs for its code objects.

There is one runtime in a process, as there is one libamdhip64: kernel libraries bind to it when they are loaded.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from pathlib import Path

from ckpm_emulator.errors import CompileError, DeviceError, EmulatorError, LibraryError

# Turns a code object (an ELF) into the blob that load_program in core/run/program.h reads; or the function of it at
# a virtual address that this blob left out.
ProgramBuilder = Callable[..., bytes]

_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64)
_U32, _U64, _I64, _P, _S, _N = (
    ctypes.c_uint32,
    ctypes.c_uint64,
    ctypes.c_int64,
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_size_t,
)
# name: result, arguments. core/hip/device_api.h, and the HIP calls made from here.
_PROTOTYPES: dict[str, tuple[object, tuple[object, ...]]] = {
    "emu_set_option": (ctypes.c_int, (_S, _I64)),
    "emu_set_text_option": (ctypes.c_int, (_S, _S)),
    "emu_get_option": (ctypes.c_int, (_S, _P)),
    "emu_on_code_object": (None, (_CALLBACK,)),
    "emu_add_program": (ctypes.c_int, (_U64, _S, _N)),
    "emu_refuse_program": (ctypes.c_int, (_U64, _S)),
    "emu_clear_fault": (None, ()),
    "emu_set_placement": (ctypes.c_int, (_U32, _U64)),
    "emu_allocate": (_P, (_N, _U32, _S)),
    "emu_release": (ctypes.c_int, (_U64,)),
    "emu_restart_addresses": (None, ()),
    "emu_mapped": (ctypes.c_int, (_U64, _U64)),
    "emu_srd_mapped": (ctypes.c_int, (_P, _P)),
    "emu_nearest": (ctypes.c_int, (_U64, _P, _P, _P, _P)),
    "emu_last_error": (_S, ()),
    "hipFree": (ctypes.c_int, (_P,)),
    "hipMemcpy": (ctypes.c_int, (_P, _P, _N, ctypes.c_int)),
    "hipMemset": (ctypes.c_int, (_P, ctypes.c_int, _N)),
    "hipDeviceSynchronize": (ctypes.c_int, ()),
    "hipDeviceReset": (ctypes.c_int, ()),
    "hipGetErrorName": (_S, (ctypes.c_int,)),
    "hipModuleLoadData": (ctypes.c_int, (_P, _P)),
    "hipModuleUnload": (ctypes.c_int, (_P,)),
    "hipModuleGetFunction": (ctypes.c_int, (_P, _P, _S)),
    "hipModuleGetGlobal": (ctypes.c_int, (_P, _P, _P, _S)),
    "hipModuleLaunchKernel": (ctypes.c_int, (_P, *(_U32,) * 7, _P, _P, _P)),
}
_OTHER_RUNTIME = "libamdhip64.so"


class Runtime:
    """The loaded library: ``runtime.c.emu_..`` are its functions."""

    def __init__(self, path: Path, builder: ProgramBuilder) -> None:
        _refuse_other_runtime()
        try:
            # Global: kernel libraries leave their HIP symbols open.
            self.c = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
            for name, (result, arguments) in _PROTOTYPES.items():
                function = getattr(self.c, name)
                function.restype, function.argtypes = result, arguments
        except (OSError, AttributeError) as error:
            remedy = f"Remove {path.parent}"
            if os.statvfs(path).f_flag & os.ST_NOEXEC:  # a new one would not load either
                remedy = "Its file system is mounted with noexec: set CKPM_CACHE to another folder"
            raise CompileError(f"the emulator's core doesn't load: {error}. {remedy}.", kind="core") from error
        self.path = path
        self._builder = builder
        self.build_failure: Exception | None = None
        self._callback = _CALLBACK(self._add_program)  # kept alive as long as the library may call it
        self.c.emu_on_code_object(self._callback)

    def text(self, name: str) -> str:
        """The text that a function of the core writes."""
        function = getattr(self.c, name)
        function.restype, function.argtypes = _N, (_P, _N)
        size = function(None, 0)
        while True:  # it may grow in between
            buffer = ctypes.create_string_buffer(size)
            needed = function(buffer, size)
            if needed <= size:
                return buffer.value.decode()
            size = needed

    def last_error(self) -> str:
        """The message of this thread's last failed call."""
        return str(self.c.emu_last_error().decode())

    def require(self, status: int, what: str) -> None:
        """Raise DeviceError unless an emu_ call answered 0."""
        if status:
            raise DeviceError(f"{what}: {self.last_error()}", 1)

    def _add_program(self, handle: int, code: int, size: int, function: int) -> int:
        """Add a program; the core calls this on the thread that needs it first. No exception may leave it."""
        try:
            blob = self._builder(ctypes.string_at(code, size), *([function] if function else []))
        except EmulatorError as error:
            return self._refuse(handle, error, str(error))
        except Exception as error:
            return self._refuse(handle, error, f"{type(error).__name__}: {error}")
        return int(self.c.emu_add_program(handle, blob, len(blob)))

    def _refuse(self, handle: int, error: Exception, why: str) -> int:
        self.build_failure = error
        self.c.emu_refuse_program(handle, why.encode())
        return 1


def require_whole(path: Path) -> None:
    """Raise LibraryError unless a file is a whole ELF: the dynamic loader crashes on a truncated one."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(64)
            if len(head) < 64 or head[:5] != b"\x7fELF\2":
                raise LibraryError(f"the library doesn't load: {path} is not a shared library of 64 bits", kind="load")
            # e_phoff, e_shoff, .., e_phentsize, e_phnum, e_shentsize, e_shnum (System V ABI)
            segments, sections = struct.unpack_from("<QQ", head, 32)
            segment_size, segment_count, section_size, section_count = struct.unpack_from("<4H", head, 54)
            ends = [sections + section_size * section_count, segments + segment_size * segment_count]
            if max(ends) <= size:
                file.seek(segments)
                table = file.read(segment_size * segment_count)
                whole = (table[at : at + 40] for at in range(0, len(table) - 39, segment_size or 1))
                ends += [sum(struct.unpack_from("<Q16xQ", segment, 8)) for segment in whole]
    except OSError as error:
        raise LibraryError(f"the library doesn't load: {path}: {error.strerror}", kind="load") from error
    if max(ends) > size:
        raise LibraryError(f"the library doesn't load: {path} is truncated", kind="load")


def _refuse_other_runtime() -> None:
    """Raise DeviceError if ROCm's runtime is loaded: libraries would bind to it."""
    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.is_file() else []
    loaded = {line.split(maxsplit=5)[5] for line in lines if _OTHER_RUNTIME in line}
    if loaded:
        raise DeviceError(f"this process has a HIP runtime already: {', '.join(sorted(loaded))}", kind="one-device")

"""The HIP ABI: what clang makes of a HIP program runs against it, and misuse ends in the right error, never a crash."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from ckpm_emulator import toolchain
from ckpm_emulator.code_object import code_objects
from ckpm_emulator.device import EmulatedGpu
from ckpm_emulator.errors import DeviceError, LibraryError
from ckpm_emulator.faults import DeviceFaultError
from emulator_assembly import assemble, check_fault, launch_fault
from emulator_child import on_device
from emulator_small import fat_binary, open_small
from emulator_small import small as small

SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONFIGURATION, DIRECTION = 0, 1, 2, 9, 21
INVALID_DEVICE, INVALID_IMAGE, NO_BINARY, NO_FILE, HANDLE = 101, 200, 209, 301, 400
ILLEGAL_ADDRESS, OUT_OF_RESOURCES, LAUNCH_FAILURE = 700, 701, 719


def _small(device: EmulatedGpu, path: Path) -> ctypes.CDLL:
    library = open_small(device, path)
    library.small_table.argtypes = (ctypes.c_uint64,)
    library.small_name.restype = library.small_arch.restype = ctypes.c_char_p
    return library


@on_device("gfx950")
def test_calls_of_header(device: EmulatedGpu, small: Path) -> None:
    assert _small(device, small).small_calls() == 0
    assert not [row for row in device.allocations() if row.kind != "code"]


@pytest.mark.parametrize("cus", [256, 1])
@on_device("gfx950")
def test_properties_by_kernels_header(device: EmulatedGpu, small: Path, cus: int) -> None:
    expected = [288 << 30, 163840, 65536, 64, 1024, 1024, 0x7FFFFFFF, 9, 5, cus, 163840]
    device.configure(cu_count=cus)
    library = _small(device, small)
    properties, values = ctypes.create_string_buffer(1472 + 64), (ctypes.c_uint64 * 12)()
    assert library.small_properties(properties, values) == SUCCESS
    assert list(values) == [1472, *expected]
    assert properties.raw[1472:] == bytes(64)  # nothing was written after the struct
    assert library.small_arch(properties) == b"gfx950:sramecc+:xnack-"
    assert library.small_name(properties).startswith(b"AMD Instinct MI350")
    assert properties.raw[308:312] == (64).to_bytes(4, "little")
    assert properties.raw[388:392] == cus.to_bytes(4, "little")
    assert properties.raw[1160:1166] == b"gfx950"
    assert device._hip_runtime.c.hipGetDevicePropertiesR0600(properties, 1) == INVALID_DEVICE


# HIP 7.0's header: a field of hipDeviceProp_t, its offset and size, and the number of its attribute.
PROPERTIES = {
    "luidDeviceNodeMask": (280, 4, 22),
    "sharedMemPerBlock": (296, 8, 74),
    "regsPerBlock": (304, 4, 71),
    "warpSize": (308, 4, 87),
    "memPitch": (312, 8, 58),
    "maxThreadsPerBlock": (320, 4, 56),
    "maxThreadsDim[0]": (324, 4, 26),
    "maxThreadsDim[1]": (328, 4, 27),
    "maxThreadsDim[2]": (332, 4, 28),
    "maxGridSize[0]": (336, 4, 29),
    "maxGridSize[1]": (340, 4, 30),
    "maxGridSize[2]": (344, 4, 31),
    "clockRate": (348, 4, 5),
    "totalConstMem": (352, 8, 83),
    "major": (360, 4, 23),
    "minor": (364, 4, 61),
    "textureAlignment": (368, 8, 81),
    "texturePitchAlignment": (376, 8, 82),
    "deviceOverlap": (384, 4, 12),
    "multiProcessorCount": (388, 4, 63),
    "kernelExecTimeoutEnabled": (392, 4, 18),
    "integrated": (396, 4, 16),
    "canMapHostMemory": (400, 4, 3),
    "computeMode": (404, 4, 6),
    "surfaceAlignment": (568, 8, 79),
    "concurrentKernels": (576, 4, 8),
    "ECCEnabled": (580, 4, 0),
    "pciBusID": (584, 4, 67),
    "pciDeviceID": (588, 4, 68),
    "pciDomainID": (592, 4, 69),
    "asyncEngineCount": (600, 4, 2),
    "unifiedAddressing": (604, 4, 85),
    "memoryClockRate": (608, 4, 60),
    "memoryBusWidth": (612, 4, 59),
    "l2CacheSize": (616, 4, 19),
    "persistingL2CacheMaxSize": (620, 4, 70),
    "maxThreadsPerMultiProcessor": (624, 4, 57),
    "streamPrioritiesSupported": (628, 4, 78),
    "globalL1CacheSupported": (632, 4, 14),
    "localL1CacheSupported": (636, 4, 20),
    "sharedMemPerMultiprocessor": (640, 8, 76),
    "regsPerMultiprocessor": (648, 4, 72),
    "managedMemory": (652, 4, 24),
    "isMultiGpuBoard": (656, 4, 17),
    "multiGpuBoardGroupID": (660, 4, 62),
    "hostNativeAtomicSupported": (664, 4, 15),
    "pageableMemoryAccess": (672, 4, 65),
    "concurrentManagedAccess": (676, 4, 9),
    "computePreemptionSupported": (680, 4, 7),
    "canUseHostPointerForRegisteredMem": (684, 4, 4),
    "cooperativeLaunch": (688, 4, 10),
    "cooperativeMultiDeviceLaunch": (692, 4, 11),
    "sharedMemPerBlockOptin": (696, 8, 75),
    "pageableMemoryAccessUsesHostPageTables": (704, 4, 66),
    "directManagedMemAccessFromHost": (708, 4, 13),
    "maxBlocksPerMultiProcessor": (712, 4, 25),
    "accessPolicyMaxWindowSize": (716, 4, 1),
    "reservedSharedMemPerBlock": (720, 8, 73),
    "hostRegisterSupported": (728, 4, 90),
    "memoryPoolsSupported": (744, 4, 88),
    "memoryPoolSupportedHandleTypes": (760, 4, 91),
    "maxSharedMemoryPerMultiProcessor": (1416, 8, 10002),
    "clockInstructionRate": (1424, 4, 10000),
    "isLargeBar": (1464, 4, 10011),
    "asicRevision": (1468, 4, 10012),
}


@on_device("gfx942")
def test_properties_are_those_of_attributes(device: EmulatedGpu) -> None:
    properties, value = ctypes.create_string_buffer(1472), ctypes.c_int(-1)
    assert device._hip_runtime.c.hipGetDevicePropertiesR0600(properties, 0) == SUCCESS
    different = {}
    for name, (offset, size, attribute) in PROPERTIES.items():
        assert device._hip_runtime.c.hipDeviceGetAttribute(ctypes.byref(value), attribute, 0) == SUCCESS
        field = int.from_bytes(properties.raw[offset : offset + size], "little", signed=True)
        if field != value.value:
            different[name] = (field, value.value)
    assert different == {}


@on_device("gfx950")
def test_registration_and_launch(device: EmulatedGpu, small: Path) -> None:
    library = _small(device, small)
    (module,) = [row for row in device.modules() if row["origin"] == str(small)]
    assert module["archs"] == ["gfx942", "gfx950"]
    assert module["kernels"] == ["_Z5touchPmm", "_Z5otherPi"]
    assert (module["error"], module["reason"]) == (0, "")
    out = device.malloc(8 * 500 + 8)
    assert library.small_touch(out.address, 0x1234567890, 5, 100, 48) == SUCCESS
    assert device.read(out, np.uint64).tolist() == [*[0x1234567890] * 500, 0]


@on_device("gfx950")
def test_variables_of_library(device: EmulatedGpu, small: Path) -> None:
    library = _small(device, small)
    assert library.small_table(77) == SUCCESS
    assert device._hip_runtime.c.hipMemcpyToSymbol(ctypes.byref(ctypes.c_int()), None, 0, 0, 1) == 13


@on_device("gfx950")
def test_fault_is_sticky_until_cleared(device: EmulatedGpu, small: Path) -> None:
    library = _small(device, small)
    out = device.malloc(20, "out")
    assert library.small_touch(out.address, 1, 1, 64, 0) == ILLEGAL_ADDRESS
    for call in (
        device._hip_runtime.c.hipDeviceSynchronize,
        device._hip_runtime.c.hipGetLastError,
        device._hip_runtime.c.hipGetLastError,
    ):
        assert call() == ILLEGAL_ADDRESS
    assert device._hip_runtime.c.hipMemset(ctypes.c_void_p(out.address), 0, ctypes.c_size_t(4)) == ILLEGAL_ADDRESS
    assert library.small_touch(out.address, 1, 1, 1, 0) == ILLEGAL_ADDRESS
    with pytest.raises(DeviceFaultError):
        device.malloc(10)
    count = ctypes.c_int()
    assert (device._hip_runtime.c.hipGetDeviceCount(ctypes.byref(count)), count.value) == (SUCCESS, 1)
    fault = device.last_fault()
    assert fault
    assert (fault.kernel, fault.lane, fault.address, fault.bytes) == ("_Z5touchPmm", 2, out.address + 16, 8)
    device.clear_fault()
    assert device._hip_runtime.c.hipGetLastError() == SUCCESS
    assert library.small_touch(out.address, 1, 1, 1, 0) == SUCCESS


@on_device("gfx950")
def test_reset_makes_device_new(device: EmulatedGpu, small: Path) -> None:
    library = _small(device, small)
    assert library.small_touch(8, 1, 1, 64, 0) == ILLEGAL_ADDRESS
    assert device._hip_runtime.c.hipDeviceReset() == SUCCESS
    out = device.malloc(512)
    assert library.small_touch(out.address, 1, 1, 64, 0) == SUCCESS


@on_device("gfx950")
def test_unknown_instruction_is_launch_failure(device: EmulatedGpu) -> None:
    fault = launch_fault(device, assemble("s_setkill 1\ns_endpgm", "gfx950"))
    check_fault(fault, "unknown", "s_setkill", "the emulator lacks opcode s_setkill", lane=None, error=LAUNCH_FAILURE)


@pytest.mark.parametrize(
    ("groups", "threads", "lds", "error"),
    [
        (0, 64, 0, INVALID_CONFIGURATION),
        (1, 0, 0, INVALID_CONFIGURATION),
        (1, 1025, 0, INVALID_CONFIGURATION),
        (1, 257, 0, INVALID_CONFIGURATION),  # the kernel's bound is 256
        (0xFFFFFFFF, 64, 0, INVALID_CONFIGURATION),
        (1, 64, 163841, OUT_OF_RESOURCES),
        (1, 64, 1 << 32, OUT_OF_RESOURCES),
        (1, 64, 163840, SUCCESS),
    ],
)
@on_device("gfx950")
def test_launch_sizes(device: EmulatedGpu, small: Path, groups: int, threads: int, lds: int, error: int) -> None:
    library = _small(device, small)
    out = device.malloc(512)
    assert library.small_touch(out.address, 1, groups, threads, lds) == error
    assert device._hip_runtime.c.hipGetLastError() == SUCCESS  # small_touch has asked already: no fault, nothing sticks
    device.synchronize()


@on_device("gfx90a")
def test_library_of_another_arch(device: EmulatedGpu, small: Path) -> None:
    with pytest.raises(
        LibraryError, match=r"libsmall.so: it has code for gfx942, gfx950; the emulated device is gfx90a"
    ):
        device.load_library(small)
    library = ctypes.CDLL(str(small))  # a caller who loads it on its own learns it at the launch
    assert library.small_touch(None, ctypes.c_uint64(), 1, 64, ctypes.c_size_t()) == NO_BINARY
    assert "the emulated device is gfx90a" in device.last_error()
    device.synchronize()


@on_device("gfx942")
def test_each_arch_gets_its_own_code(device: EmulatedGpu, small: Path) -> None:
    codes = dict(code_objects(small))
    device.load_module(fat_binary(small))
    device.load_module(codes["gfx942"])
    with pytest.raises(DeviceError, match="it has code for gfx950; the emulated device is gfx942") as caught:
        device.load_module(codes["gfx950"])
    assert caught.value.error == NO_BINARY


@on_device("gfx950")
def test_truncated_images(device: EmulatedGpu, small: Path) -> None:
    elf = dict(code_objects(small))["gfx950"]
    path = small.parent / "cut.co"
    call = device._hip_runtime.c.hipModuleLoad
    for size in (0, 3, 23, 63, 64, 500, len(elf) // 2, len(elf) - 1, len(elf)):
        path.write_bytes(elf[:size])
        handle = ctypes.c_void_p()
        status = call(ctypes.byref(handle), str(path).encode())
        assert status == (SUCCESS if size == len(elf) else INVALID_IMAGE), size
        assert bool(handle.value) == (size == len(elf))
    path.unlink()
    assert call(ctypes.byref(handle), str(path).encode()) == NO_FILE


@on_device("gfx950")
def test_images_of_unknown_size_that_end(device: EmulatedGpu, small: Path) -> None:
    """A pointer to a code object whose memory ends too early: its last page is followed by an unmapped one."""
    import mmap

    elf = dict(code_objects(small))["gfx950"]
    for size in (mmap.PAGESIZE, len(elf) // mmap.PAGESIZE * mmap.PAGESIZE):
        space = mmap.mmap(-1, size + mmap.PAGESIZE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(space))
        space[:size] = elf[:size]
        libc = ctypes.CDLL(None)
        assert libc.mprotect(ctypes.c_void_p(start + size), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
        handle = ctypes.c_void_p()
        status = device._hip_runtime.c.hipModuleLoadData(ctypes.byref(handle), start)
        assert status == INVALID_IMAGE
        assert "truncated" in device.last_error()
    for wild in (8, 1 << 46):
        assert device._hip_runtime.c.hipModuleLoadData(ctypes.byref(handle), wild) == INVALID_IMAGE


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (b"", "truncated"),
        (b"x" * 100, "neither an offload bundle nor an ELF"),
        (b"CCOB" + bytes(100), "compressed"),
        (b"__CLANG_OFFLOAD_BUNDLE__" + bytes(8), "no GPU"),
        (b"__CLANG_OFFLOAD_BUNDLE__" + b"\xff" * 8, "truncated|damaged"),
        (b"\x7fELF\x02\x01" + bytes(100), "another machine"),
    ],
)
@on_device("gfx950")
def test_images_of_garbage(device: EmulatedGpu, image: bytes, reason: str) -> None:
    with pytest.raises(DeviceError, match=reason) as caught:
        device.load_module(image)
    assert caught.value.error in (INVALID_IMAGE, NO_BINARY)


@on_device("gfx950")
def test_modules(device: EmulatedGpu, small: Path) -> None:
    module = device.load_module(fat_binary(small))
    out = device.malloc(64)
    module.launch("_Z5touchPmm", (1,), (8,), [ctypes.c_uint64(out.address), ctypes.c_uint64(5)], lds_bytes=48)
    assert device.read(out, np.uint64).tolist() == [5] * 8
    with pytest.raises(DeviceError, match=r"hipErrorNotFound \(500\).*no kernel 'nothing'"):
        module.launch("nothing", (1,), (64,), [])
    with pytest.raises(DeviceError, match="no variable 'nothing'"):
        module.variable("nothing")
    assert module.variable("table").bytes == 256
    big = device.load_module(assemble("s_endpgm", "gfx950", lds_bytes=65536))
    with pytest.raises(DeviceError, match=r"hipErrorLaunchOutOfResources.*229376 bytes of LDS; gfx950 has 163840"):
        big.launch("test_kernel", (1,), (64,), [ctypes.c_uint64(0)] * 2, lds_bytes=163840)
    module.unload()
    with pytest.raises(DeviceError, match="not a loaded module"):
        module.launch("_Z5touchPmm", (1,), (64,), [])
    with pytest.raises(DeviceError, match="not a loaded module"):
        module.unload()


@on_device("gfx950")
def test_packed_arguments(device: EmulatedGpu, small: Path) -> None:
    c, handle, function = device._hip_runtime.c, ctypes.c_void_p(), ctypes.c_void_p()
    image = fat_binary(small)
    assert c.hipModuleLoadData(ctypes.byref(handle), image) == SUCCESS
    assert c.hipModuleGetFunction(ctypes.byref(function), handle, b"_Z5touchPmm") == SUCCESS
    out = device.malloc(512)
    block = (ctypes.c_uint64 * 2)(out.address, 9)
    for size, written in ((16, 9), (8, 0)):  # ROCm takes a block without the last arguments
        count = ctypes.c_size_t(size)
        extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(block), 2, ctypes.addressof(count), 3)
        assert c.hipModuleLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, None, None, extra) == SUCCESS
        assert device.read(out, np.uint64)[0] == written
    assert c.hipModuleLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, None, None, None) == INVALID_VALUE
    nulls = (ctypes.c_void_p * 2)()
    assert c.hipModuleLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, None, nulls, None) == INVALID_VALUE
    assert c.hipModuleUnload(handle) == SUCCESS
    assert c.hipModuleLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, None, None, extra) == HANDLE


@on_device("gfx950")
def test_copies_are_checked(device: EmulatedGpu) -> None:
    c = device._hip_runtime.c
    buffer, host = device.malloc(100), ctypes.create_string_buffer(200)
    here = ctypes.addressof(host)
    for to, source, size, kind, status in (
        (buffer.address, here, 100, 1, SUCCESS),
        (buffer.address + 50, here, 50, 4, SUCCESS),
        (buffer.address + 50, here, 51, 1, INVALID_VALUE),
        (buffer.address + 50, here, 51, 4, INVALID_VALUE),
        (here, buffer.address - 1, 1, 2, INVALID_VALUE),
        (here, buffer.address, 101, 2, INVALID_VALUE),
        (here, buffer.address, 101, 0, INVALID_VALUE),
        (here, here + 100, 100, 3, INVALID_VALUE),
        (here, here + 100, 100, 0, SUCCESS),
        (buffer.address, here, 1 << 63, 1, INVALID_VALUE),
        (None, here, 1, 1, INVALID_VALUE),
        (buffer.address, None, 1, 1, INVALID_VALUE),
        (None, None, 0, 1, SUCCESS),
        (buffer.address, here, 1, 9, DIRECTION),
        (buffer.address + 10, buffer.address, 90, 3, SUCCESS),
    ):
        assert c.hipMemcpy(to, source, size, kind) == status, (to, source, size, kind)
    c.hipMemcpy(buffer.address + 50, here, 51, 1)
    assert "the destination" in device.last_error()
    assert f"ends 1 bytes past the allocation of 100 bytes at {buffer.address:#x}" in device.last_error()
    assert c.hipMemset(buffer.address, 1, 101) == INVALID_VALUE
    device.free(buffer)
    assert c.hipMemset(buffer.address, 1, 1) == INVALID_VALUE
    assert "was freed" in device.last_error()


@on_device("gfx950")
def test_wrong_frees(device: EmulatedGpu) -> None:
    c, host = device._hip_runtime.c, ctypes.c_void_p()
    assert c.hipHostMalloc(ctypes.byref(host), ctypes.c_size_t(10), 0) == SUCCESS
    buffer = device.malloc(10)
    assert c.hipFree(None) == SUCCESS
    assert c.hipFree(buffer.address + 1) == INVALID_VALUE
    assert c.hipFree(ctypes.addressof(ctypes.c_int())) == INVALID_VALUE
    assert c.hipFree(host) == INVALID_VALUE
    assert c.hipHostFree(ctypes.c_void_p(buffer.address)) == INVALID_VALUE
    assert c.hipHostFree(host) == SUCCESS
    assert (c.hipFree(buffer.address), c.hipFree(buffer.address)) == (SUCCESS, INVALID_VALUE)


@on_device("gfx950")
def test_handles_that_do_not_live(device: EmulatedGpu) -> None:
    c, event, stream = device._hip_runtime.c, ctypes.c_void_p(), ctypes.c_void_p()
    elapsed = ctypes.c_float()
    assert c.hipEventCreate(ctypes.byref(event)) == SUCCESS
    assert c.hipEventElapsedTime(ctypes.byref(elapsed), event, event) == HANDLE  # not recorded
    assert c.hipEventDestroy(event) == SUCCESS
    assert c.hipEventRecord(event, None) == HANDLE
    assert c.hipEventDestroy(event) == HANDLE
    assert c.hipStreamCreate(ctypes.byref(stream)) == SUCCESS
    assert c.hipStreamDestroy(stream) == SUCCESS
    assert c.hipStreamSynchronize(stream) == HANDLE
    assert c.hipStreamSynchronize(ctypes.c_void_p(12345)) == HANDLE
    untimed = ctypes.c_void_p()
    assert c.hipEventCreateWithFlags(ctypes.byref(untimed), 2) == SUCCESS
    assert c.hipEventRecord(untimed, None) == SUCCESS
    assert c.hipEventElapsedTime(ctypes.byref(elapsed), untimed, untimed) == HANDLE


class ChannelFormat(ctypes.Structure):
    """hipChannelFormatDesc of hip/driver_types.h."""

    _fields_ = [(name, ctypes.c_int) for name in ("x", "y", "z", "w", "kind")]


@on_device("gfx950")
def test_answers_that_are_values(device: EmulatedGpu) -> None:
    c, stream = device._hip_runtime.c, ctypes.c_void_p()
    assert c.hipStreamCreate(ctypes.byref(stream)) == SUCCESS
    assert (c.hipGetStreamDeviceId(stream), c.hipGetStreamDeviceId(None)) == (0, 0)
    assert c.hipStreamDestroy(stream) == SUCCESS
    assert c.hipGetStreamDeviceId(stream) == -1
    create = c.hipCreateChannelDesc
    create.restype = ChannelFormat
    channel = create(32, 16, 8, 4, 2)  # float
    assert (channel.x, channel.y, channel.z, channel.w, channel.kind) == (32, 16, 8, 4, 2)


@on_device("gfx950")
def test_attributes_of_streams_are_kept(device: EmulatedGpu) -> None:
    """hipLaunchAttributeID: 3 is the synchronisation policy, 8 the priority. A value has 64 bytes."""
    c, streams = device._hip_runtime.c, (ctypes.c_void_p(), ctypes.c_void_p())
    for stream in streams:
        assert c.hipStreamCreateWithPriority(ctypes.byref(stream), 0, -1) == SUCCESS
    value = (ctypes.c_int * 16)(2)
    assert c.hipStreamSetAttribute(streams[0], 3, value) == SUCCESS
    assert c.hipStreamCopyAttributes(streams[1], streams[0]) == SUCCESS
    for attribute, expected in ((3, 2), (8, -1)):
        assert c.hipStreamGetAttribute(streams[1], attribute, value) == SUCCESS
        assert value[0] == expected
    assert c.hipStreamGetAttribute(streams[1], 99, value) == INVALID_VALUE
    for stream in streams:
        assert c.hipStreamDestroy(stream) == SUCCESS


@on_device("gfx950")
def test_registered_memory(device: EmulatedGpu) -> None:
    c, data = device._hip_runtime.c, (ctypes.c_uint8 * 100)()
    start = ctypes.c_void_p(ctypes.addressof(data))
    assert c.hipHostRegister(start, ctypes.c_size_t(100), 0) == SUCCESS
    assert c.hipHostRegister(start, ctypes.c_size_t(100), 0) == 712
    assert c.emu_mapped(start.value, 100) == 1
    assert c.emu_mapped(start.value, 101) == 0
    assert c.hipFree(start) == INVALID_VALUE
    assert c.hipHostUnregister(start) == SUCCESS
    assert c.hipHostUnregister(start) == 713


@on_device("gfx950")
def test_error_names(device: EmulatedGpu) -> None:
    c = device._hip_runtime.c
    c.hipGetErrorString.restype = ctypes.c_char_p
    assert c.hipGetErrorName(700) == b"hipErrorIllegalAddress"
    assert c.hipGetErrorString(209) == b"no kernel image is available for execution on the device"
    assert c.hipGetErrorName(12345) == b"hipErrorUnknown"


@on_device("gfx950")
def test_missing_symbol_and_missing_file(device: EmulatedGpu, tmp_path: Path) -> None:
    with pytest.raises(LibraryError, match=r"nothing\.so"):
        device.load_library(tmp_path / "nothing.so")
    source, orphan = tmp_path / "orphan.cpp", tmp_path / "orphan.so"
    source.write_text('extern "C" int hipNobodyHasThis(); extern "C" int ask() { return hipNobodyHasThis(); }')
    compiler = next(iter(toolchain.compilers()))
    compiler.run("-shared", "-fPIC", str(source), "-o", str(orphan))
    with pytest.raises(LibraryError, match="undefined symbol: hipNobodyHasThis"):
        device.load_library(orphan)
    text = tmp_path / "text.so"
    text.write_text("no library")
    with pytest.raises(LibraryError, match=r"text\.so is not a shared library"):
        device.load_library(text)


@on_device("gfx950")
def test_library_of_newer_system_names_remedy(device: EmulatedGpu, tmp_path: Path) -> None:
    """The C library of the other system has a version of a function that the library here lacks."""
    compiler, needed, library = next(iter(toolchain.compilers())), tmp_path / "libneeded.so", tmp_path / "library.so"
    part, ask, names = (tmp_path / name for name in ("part.cpp", "ask.cpp", "names"))
    part.write_text('extern "C" int part() { return 1; }')
    ask.write_text('extern "C" int part(); extern "C" int ask() { return part(); }')
    shared = ("-shared", "-fPIC")
    for version in ("GLIBC_2.999", "GLIBC_2.0"):  # there, here
        names.write_text(f"{version} {{ global: part; }};\n")
        script = (f"-Wl,--version-script={names}", f"-Wl,-soname,{needed.name}")
        compiler.run(*shared, str(part), *script, "-o", str(needed))
        if not library.exists():
            compiler.run(*shared, str(ask), str(needed), f"-Wl,-rpath,{tmp_path}", "-o", str(library))
    with pytest.raises(
        LibraryError, match=r"version `GLIBC_2\.999' not found .*\. It was built on a newer system: build"
    ):
        device.load_library(library)


@on_device("gfx950")
def test_truncated_library(device: EmulatedGpu, small: Path, tmp_path: Path) -> None:
    """The dynamic loader maps the sizes in the headers: a read after the file's end would kill the process."""
    data = small.read_bytes()
    for part in (10, 63, 64, 1000, len(data) // 2, len(data) - 100):
        cut = tmp_path / f"cut{part}.so"
        cut.write_bytes(data[:part])
        with pytest.raises(LibraryError, match=rf"cut{part}\.so is (truncated|not a shared library)"):
            device.load_library(cut)

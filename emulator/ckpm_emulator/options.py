"""Options of the emulated device: its properties and its checks."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ckpm_emulator.errors import DeviceError, unknown_words

ARCHS = {"gfx90a": 910, "gfx942": 942, "gfx950": 950}  # core: Options::arch
PAGE = 4096
_NO_WORKGROUP, _LONGEST = -1, -2  # core: Options::record_workgroup


def processors(root: Path = Path("/")) -> int:
    """The number of processors that this process may use: by affinity, and by the processor time of its groups."""
    most, top = len(os.sched_getaffinity(0)), root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    names = {PurePosixPath("/"), *(PurePosixPath(line.rpartition(":")[2]) for line in lines)}
    for name in names.union(*(name.parents for name in names)):
        for group in (top / name.relative_to("/"), top / "cpu" / name.relative_to("/")):
            files = (group / file for file in ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us"))
            share = " ".join(file.read_text() for file in files if file.is_file()).split()
            if len(share) == 2 and share[0].isdigit():  # else there is no group, or no limit: max, -1
                most = min(most, max(1, -(-int(share[0]) // int(share[1]))))
    return most


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Write the instructions that one wave of a kernel executes to a file."""

    file: str
    kernel: str = ""  # part of its name; empty: any
    workgroup: int = 0  # linear index
    wave: int = 0


@dataclass(frozen=True, kw_only=True)
class Record:
    """Keep what the waves of one workgroup of a kernel execute, for ``EmulatedGpu.replay``."""

    kernel: str = ""  # part of its name; empty: any
    workgroup: int | None = None  # linear index; None: the one that executes most instructions
    only: bool = False  # run no other workgroup


@dataclass(frozen=True, kw_only=True)
class Options:
    """All settings; the defaults are a GPU of the arch with byte-exact addresses and no other check."""

    arch: str = "gfx950"
    cu_count: int | None = 256  # kernels choose their tile by it; None: what a board of the arch has
    threads: int = 0  # host threads that run workgroups; 0: one a processor
    granularity: int = 1  # addresses must lie in the bytes asked for (1) or in their pages (4096)
    srd_range_rule: bool | None = None  # a buffer's whole range must be mapped; None: on for gfx950 only
    poison: bool = False  # registers, LDS and scratch start as NaN patterns
    poison_memory: bool = False  # fresh allocations too: bytes 0xff
    late_loads: bool = False  # asynchronous results land only at the wait that covers them
    lds_races: bool = False  # unordered LDS accesses of two waves are faults
    uninitialised: bool = False  # a decision by a register, LDS or scratch that was never written is a fault
    uninitialised_memory: bool = False  # of device memory, too
    heap: bool = False  # what malloc() gives in kernels is bounded, and a wrong free() is reported
    leaks: bool = False  # of a program that runs by itself: report what it has not freed when it ends
    alignment: bool = False  # a misaligned atomic or scalar load is a fault
    unaligned: bool = False  # an access not aligned to its size, or to 4, is a fault; the hardware allows it
    barriers: bool = False  # a barrier with lanes off, or beside waves at another barrier, is a fault
    late_lds_reads: bool = False  # with late_loads: a write of LDS over a read that was not waited for is a fault
    interleaved: bool = False  # a wave that waits for memory lets the others go on first
    global_races: bool = False  # unordered accesses of two waves to device memory are faults; one host thread
    stream_order: bool = False  # operations of two streams that use the same bytes in no order are reported
    lds_bounds: bool = True  # a read outside of LDS is a fault; if off, the first is reported and all read 0
    open_rules: bool = False  # an instruction on whose result sources disagree is a fault
    hazards: bool = False  # an instruction too early after another, by LLVM's wait states, is a fault
    exact_mfma: bool = False  # sums of MFMA bit for bit as a published model of gfx942 has them; slow
    wave_order: int = 0  # 0 forward, 1 backward, from 2 on a seed
    max_instructions: int = 0  # of one wave; 0: no limit
    checked_kernel: str = ""  # check only kernels whose name contains this
    launch_skip: int = 0  # skip so many of these launches
    launch_count: int = 0  # then check so many; 0: all
    suppressions: tuple[str, ...] = ()  # a check, and a part of the kernel's name or of the report
    memory_bytes: int | None = None  # of the device; None: what a board of the arch has
    guard_bytes: int = 4 << 30  # unmapped space between allocations
    trace: Trace | None = None
    record: Record | None = None

    def __post_init__(self) -> None:
        if self.arch not in ARCHS:
            raise DeviceError(f"no emulated device has the arch '{self.arch}'. Known: {', '.join(ARCHS)}.", 100)
        if self.exact_mfma and self.arch != "gfx942":
            raise DeviceError(f"exact_mfma: there is a model of gfx942's matrix arithmetic, none of {self.arch}'s.", 1)

    def replace(self, **changes: object) -> Options:
        """A copy with some options changed. Raises DeviceError for an option that doesn't exist."""
        names = sorted(field.name for field in dataclasses.fields(self))
        if unknown := sorted(changes.keys() - {*names}):
            raise unknown_words("option", unknown, names)
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]

    def integers(self) -> dict[str, int]:
        """The core's options by name, in an order that can be applied."""
        values = {
            "arch": ARCHS[self.arch],
            "threads": self.threads or processors(),
            "granularity": self.granularity,
            "srd_range_rule": -1 if self.srd_range_rule is None else int(self.srd_range_rule),
            "guard": self.guard_bytes,
        }
        if self.memory_bytes is not None:  # after the arch, which sets a board's
            values["capacity"] = self.memory_bytes
        if self.cu_count is not None:
            values["cu_count"] = self.cu_count
        checks = [field.name for field in dataclasses.fields(self) if field.type == "bool" and field.name != "hazards"]
        values |= {name: int(getattr(self, name)) for name in checks}
        values["uninitialised"] = int(self.uninitialised or self.uninitialised_memory)
        values |= {
            name: getattr(self, name) for name in ("wave_order", "max_instructions", "launch_skip", "launch_count")
        }
        trace = self.trace or Trace(file="")
        values |= {"trace_workgroup": trace.workgroup, "trace_wave": trace.wave}
        record = self.record or Record(workgroup=_NO_WORKGROUP)
        chosen = _LONGEST if record.workgroup is None else record.workgroup
        return values | {"record_workgroup": chosen, "record_only": int(record.only)}

    def texts(self) -> dict[str, str]:
        """The core's text options by name."""
        trace = self.trace or Trace(file="")
        record = self.record.kernel if self.record else ""
        checked = {"checked_kernel": self.checked_kernel, "suppressions": ";".join(self.suppressions)}
        return {"trace_kernel": trace.kernel, "trace_file": trace.file, "record_kernel": record, **checked}

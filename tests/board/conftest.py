"""A machine with an MI350 that is not there: the emulator's runtime as ROCm's, and a folder with the driver's files."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from ckpm.base.paths import PYTHONPATH
from ckpm.reports.board.page import BoardFindings, read_findings
from ckpm.reports.board.parcel import open_parcel
from ckpm_emulator import standalone, toolchain
from ckpm_emulator.options import Options

_VERSIONS = {"gfx942": 90402, "gfx950": 90500}
_SENSORS = {
    "power_dpm_force_performance_level": "auto",
    "current_compute_partition": "SPX",
    "current_memory_partition": "NPS1",
    "hwmon/hwmon0/temp2_input": "50000",
}


# ckpm, with a time limit for board and dispatch
_IMPATIENT = """
import sys
from msgspec import structs
from ckpm.commands import main
from ckpm.reports.board import command
table, minutes = command.read_steps(), float(sys.argv[1])
stages = {name: structs.replace(table.stages[name], minutes=minutes) for name in ("board", "dispatch")}
command.read_steps = lambda: structs.replace(table, stages={**table.stages, **stages})
sys.exit(main(sys.argv[2:]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A stand-in for a machine with one GPU. ``system`` takes the place of /, ``rocm`` of /opt/rocm."""

    folder: Path
    system: Path
    rocm: Path
    arch: str

    @property
    def broken(self) -> Path:
        """The file that keeps a planted failure; deleting it is the reset."""
        return self.folder / "broken"

    def environment(self, planted: str = "") -> dict[str, str]:
        options = Options(arch=self.arch, granularity=4096)
        variables = standalone.environment(standalone.Run(command=["first-gpu-run"], options=options), {})
        return {
            **os.environ,
            standalone.VARIABLE: variables[standalone.VARIABLE],
            "PYTHONPATH": PYTHONPATH,
            "ROCM_PATH": str(self.rocm),
            "CKPM_SYSTEM": str(self.system),
            "CKPM_TEST_PLANTED": planted,
            "CKPM_TEST_BROKEN": str(self.broken),
        }

    def command(self, *options: str, minutes: float = 60) -> list[str]:
        argv = ["first-gpu-run", "--tier", "smoke", "--work", str(self.folder / "work"), *options]
        return [sys.executable, "-P", "-c", _IMPATIENT, str(minutes), *argv]

    def run(
        self, *options: str, planted: str = "", minutes: float = 60, prepare: Callable[[], None] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*options, minutes=minutes), env=self.environment(planted), cwd=self.folder, check=False,
            capture_output=True, text=True, preexec_fn=prepare,
        )  # fmt: skip

    def findings(self) -> BoardFindings:
        """The contents of the file that came out."""
        (file,) = self.folder.glob("work/*/*.tar.xz")
        return read_findings(open_parcel(file, Path(tempfile.mkdtemp(dir=self.folder))))

    def endings(self) -> dict[str, str]:
        """The end of each step."""
        return {step.name: step.ending for step in self.findings().run.steps}


@pytest.fixture(scope="session")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of planted.c before the emulator's."""
    core = toolchain.library()
    library = tmp_path_factory.mktemp("runtime") / "libamdhip64.so.7"
    source = Path(__file__).with_name("planted.c")
    compiler = [
        sys.executable,
        "-m",
        "ziglang",
        "cc",
        "-shared",
        "-fPIC",
        str(source),
        "-Wl,--no-as-needed",
        str(core),
        "-o",
        str(library),
    ]
    subprocess.run([*compiler, f"-Wl,-rpath,{core.parent}", "-Wl,-soname,planted.so"], check=True)
    return library


@pytest.fixture
def make_machine(tmp_path: Path, runtime: Path) -> Callable[..., Machine]:
    def make(*archs: str) -> Machine:
        """A machine with boards of these archs, gfx950 alone without one; the last is emulated."""
        archs = archs or ("gfx950",)
        machine = Machine(folder=tmp_path, system=tmp_path / "system", rocm=tmp_path / "rocm", arch=archs[-1])
        card = machine.system / "sys/devices/0000:00:00.0"
        nodes = machine.system / "sys/class/kfd/kfd/topology/nodes"
        texts = {card / name: text for name, text in _SENSORS.items()}
        texts |= {machine.system / "dev/kfd": "", nodes / "0/properties": "simd_count 0\n"}
        for number, arch in enumerate(archs, 1):
            properties = f"simd_count 1024\ngfx_target_version {_VERSIONS[arch]}\n"
            texts[nodes / f"{number}/properties"] = properties
        for file, text in texts.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        drm = machine.system / "sys/class/drm/card0"
        drm.mkdir(parents=True)
        (drm / "device").symlink_to(card)
        (machine.rocm / "lib").mkdir(parents=True)
        (machine.rocm / "lib" / runtime.name).symlink_to(runtime)
        return machine

    return make

"""The image with Debian's ROCm without a GPU: the errors of the real amdsmi and HIP runtime become one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ckpm.base import settings
from ckpm.docker import building
from ckpm.docker.context import ImageSources, labels
from ckpm.docker.engines import ContainerRun, Engine, Mount
from ckpm.docker.images import image
from ckpm.docker.running import run

ROOT = Path(__file__).parents[2]
KFD = Path("/dev/kfd")

pytestmark = pytest.mark.skipif(KFD.exists(), reason="this machine has a GPU")

SENSORS = """
import json, sys
sys.path.insert(0, {root!r})
from ckpm.attention.launch import gpu_context
found = gpu_context.smi_sensors("0000:c1:00.0")
import amdsmi
print(json.dumps([found, amdsmi.__file__]))
"""


@pytest.fixture(scope="module")
def tag(engine: Engine) -> str:
    sources = ImageSources(settings.cache_folder(), labels())
    return building.ensure(engine, image("debian-rocm-test"), ROOT / "build" / "docker", sources)


def inside(engine: Engine, tag: str, *command: str) -> subprocess.CompletedProcess[str]:
    mount = Mount(source=ROOT, target=ROOT)
    order = ContainerRun(image=tag, command=command, mounts=[mount], workdir=ROOT, user=f"{os.getuid()}:{os.getgid()}")
    return run(engine, order, output=subprocess.PIPE)


def test_amdsmi_without_driver_is_reported_in_one_line(engine: Engine, tag: str) -> None:
    done = inside(engine, tag, "python3", "-B", "-c", SENSORS.format(root=str(ROOT)))
    assert done.returncode == 0, done.stderr
    readings, file = json.loads(done.stdout.splitlines()[-1])
    assert file == "/usr/lib/python3/dist-packages/amdsmi/__init__.py"  # Debian's package, not a stand-in
    assert list(readings) == ["smi"]
    assert readings["smi"].startswith("amdsmi can't be started: ")
    assert "\n" not in readings["smi"]


def test_compare_without_gpu_is_reported() -> None:
    """Run `nox -s in-container -- ckpm` without libraries, in the environment of sessions."""
    options = "compare --output build/gpu.json --device hip --baseline a/libckpm.so --candidate b/libckpm.so"
    done = subprocess.run(
        [sys.executable, "-m", "ckpm", "in-container", "ckpm", "--options", options],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    output = done.stdout + done.stderr
    assert "Traceback" not in output
    assert "error: no GPU of arch gfx950: there is none. Run on the emulator" in output, output[-3000:]
    assert "failed with exit code" in output

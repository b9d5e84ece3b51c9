"""The emulator's image as an engine built it: packages, user, and a session of this project inside."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ckpm.docker import rootfs
from ckpm.docker.building import BuiltImage, output
from ckpm.docker.engines import ContainerRun, Engine, Mount
from ckpm.docker.images import image

ONE = image("debian-emulator")


def shell(engine: Engine, built: BuiltImage, script: str, **more: object) -> str:
    return output(engine, ContainerRun(image=built.tag, command=["sh", "-c", script], **more)).strip()  # type: ignore[arg-type]


def test_image_has_python_and_no_rocm(built: BuiltImage) -> None:
    assert {"python3", "python3-venv", "ca-certificates"} <= set(built.packages)
    assert not {"hipcc", "libamdhip64-6", "g++"} & set(built.packages)


def test_default_user_is_not_root(engine: Engine, built: BuiltImage) -> None:
    assert shell(engine, built, "id -u; id -g; pwd") == "10001\n10001\n/home/ckpm"


def test_healthcheck_passes(engine: Engine, built: BuiltImage) -> None:
    output(engine, ContainerRun(image=built.tag, command=ONE.purpose.healthcheck))


def test_image_has_no_settings_of_this_machine(engine: Engine, built: BuiltImage) -> None:
    """Search for the mirror and the settings of apt, which can have a password."""
    host = rootfs.mirror().split("/")[2]
    hidden = f"grep -rlF {host} /etc /var/lib/apt /root /home 2>/dev/null; find /run/secrets -type f 2>/dev/null; true"
    assert shell(engine, built, hidden, user="0:0") == ""
    assert shell(engine, built, "ls /etc/apt/sources.list.d /var/lib/apt/lists; ls /etc/apt/sources.list || true") in (
        "/etc/apt/sources.list.d:\n\n/var/lib/apt/lists:"
    )


def test_files_in_mount_belong_to_caller(engine: Engine, built: BuiltImage, tmp_path: Path) -> None:
    mount = Mount(source=tmp_path, target=tmp_path, writable=True)
    user = f"{os.getuid()}:{os.getgid()}"
    shell(engine, built, f"touch {tmp_path}/mine", mounts=[mount], user=user)
    assert (tmp_path / "mine").stat().st_uid == os.getuid()


def test_two_runs_at_once_in_one_image(engine: Engine, built: BuiltImage) -> None:
    """doctor, in an environment made there with this machine's pip settings, by whichever of the two comes first."""
    command = [sys.executable, "-m", "ckpm", "in-container", "doctor", "--image", ONE.name, "--engine", engine.name]
    both = [
        subprocess.Popen(
            command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for _ in range(2)
    ]
    for text, run in [(run.communicate()[0], run) for run in both]:
        assert run.returncode == 0, text[-3000:]
        assert f"doctor in {ONE.name}" in text
        assert "Session doctor was successful" in text

"""Bootstrap a Debian suite with mmdebstrap, with the same bytes each time, and pass this machine's access to mirrors.

Mirror and proxies come from this machine's apt and go to mmdebstrap and the engine. Their traces are removed from the
root file system before it is packed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from ckpm.base.errors import CkPrefillError, CompileError, DiskFullError
from ckpm.base.files import make_folder, name_write_errors
from ckpm.docker.images import Base
from ckpm.docker.running import call

MIRROR = "CKPM_DEBIAN_MIRROR"
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"  # the same path on Debian and in the image
_ACCESS = ("Acquire::Check-", "Acquire::http", "Acquire::https", "Acquire::ForceIPv", "Acquire::Retries")
_OPTIONS = ("--variant=apt", "--format=tar", "--include=debian-archive-keyring")
_SHOWN_LINES = 10
# mirror, proxies, name and resolver of this machine
_THIS_MACHINES = ("etc/apt/sources.list", "etc/apt/apt.conf.d/99mmdebstrap", "etc/hostname", "etc/resolv.conf")


def mirror() -> str:
    """CKPM_DEBIAN_MIRROR, else the Debian mirror of this machine's apt."""
    if chosen := os.environ.get(MIRROR):
        return chosen
    question = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian"]
    try:
        run = subprocess.run(question, capture_output=True, text=True, errors="replace", check=False)
    except OSError:
        run = None
    if run is None or not run.stdout.strip():
        raise CompileError(
            f"no Debian mirror is configured in this machine's apt: set {MIRROR} to a URL that has dists/ and pool/.",
            kind="root-filesystem",
        )
    return run.stdout.split()[0]


def access() -> str:
    """The settings of this machine's apt for access to mirrors: proxies, time-outs, checks of dates."""
    try:
        run = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, errors="replace", check=False)
    except OSError:
        return ""  # not Debian
    lines = [line for line in run.stdout.splitlines() if line.startswith(_ACCESS) and "Auto-Detect" not in line]
    return "".join(f"{line}\n" for line in lines if not line.endswith(' "";'))


def secrets(base: Base, folder: Path) -> dict[str, Path]:
    """Write the files that the RUN steps mount, readable by this user alone. A registry's base has its own sources."""
    make_folder(folder)
    conf, sources = access(), ""
    if base.suite:
        conf += 'Dir::Etc::SourceList "/run/secrets/sources.list";\nDir::Etc::SourceParts "-";\n'
        sources = f"{_source(base)}\n"
    files = {"apt.conf": folder / "apt.conf", "sources.list": folder / "sources.list"}
    for name, text in (("apt.conf", conf), ("sources.list", sources)):
        write_private(files[name], text)
    return files


def write_private(file: Path, text: str) -> None:
    """Replace a file with one that only this user can read."""
    with name_write_errors(file):
        file.unlink(missing_ok=True)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.write(text)


def _source(base: Base) -> str:
    return f"deb [signed-by={_KEYRING}] {mirror()} {base.suite} main"


def command(base: Base, target: Path, conf: Path) -> list[str]:
    """The command line of mmdebstrap for a tar file of the essential packages and apt."""
    removal = "rm -f " + " ".join(f'"$1/{name}"' for name in _THIS_MACHINES)
    options = (*_OPTIONS, f"--aptopt={conf}", f"--customize-hook={removal}")
    return ["mmdebstrap", *options, base.suite, str(target), _source(base)]


def kept(base: Base, folder: Path) -> Path:
    """The tar file of a suite in ``folder``, made if missing."""
    identity = hashlib.sha256(f"{base.suite} {base.epoch} {_OPTIONS} {_THIS_MACHINES}".encode()).hexdigest()[:16]
    file = folder / f"{base.suite}-{identity}.tar"
    if not file.is_file():
        make(base, file)
    return file


def make(base: Base, file: Path) -> None:
    """Bootstrap a suite into a tar file, with the same bytes from the same packages."""
    if shutil.which("mmdebstrap") is None:
        raise CompileError(
            f"base {base.name} needs mmdebstrap, which is missing: apt-get install mmdebstrap.", kind="root-filesystem"
        )
    make_folder(file.parent)
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    conf = beside.with_suffix(".conf")
    write_private(conf, access())
    try:
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(base.epoch)}
        done = call(command(base, beside, conf), output=subprocess.PIPE, environment=environment)
        if done.returncode:
            raise _failure(base, file, done.stderr or done.stdout)
        with name_write_errors(file):
            beside.replace(file)
    finally:
        with name_write_errors(conf):
            conf.unlink(missing_ok=True)
            beside.unlink(missing_ok=True)


def _failure(base: Base, file: Path, output: str) -> CkPrefillError:
    if "no space left on device" in output.lower():
        return DiskFullError(f"{file}: no space left on the disk for base {base.name}. Free some there and in TMPDIR.")
    end = "\n".join(output.strip().splitlines()[-_SHOWN_LINES:])
    return CompileError(f"mmdebstrap could not make base {base.name}:\n{end}", kind="root-filesystem")

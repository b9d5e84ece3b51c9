"""TLS for one run: a certificate that is made for it, and that only who can read this user's files has.

Whoever reaches a Dask scheduler can run programs as its user. The one that `--cluster slurm` starts listens on the
network, and therefore answers those alone that hold the certificate of the run.
"""

from __future__ import annotations

from pathlib import Path

from distributed import Security

from ckpm.base.files import make_folder, write_atomically

_CERTIFICATE, _KEY = "certificate.pem", "key.pem"


def make(folder: Path) -> Security:
    """New credentials in a folder that all machines share and that nobody else may read.

    Raises DiskFullError, OutputError.
    """
    made = Security.temporary()
    make_folder(folder)
    folder.chmod(0o700)
    write_atomically(folder / _CERTIFICATE, made.tls_ca_file.encode())
    write_atomically(folder / _KEY, made.tls_client_key.encode())
    (folder / _KEY).chmod(0o600)
    return of(folder)


def of(folder: Path) -> Security:
    """The credentials in a folder, for client, scheduler and workers."""
    certificate, key = str(folder / _CERTIFICATE), str(folder / _KEY)
    roles = {f"tls_{role}_{part}": file for role in ("client", "scheduler", "worker") for part, file in
             (("cert", certificate), ("key", key))}  # fmt: skip
    return Security(tls_ca_file=certificate, require_encryption=True, **roles)


def forget(folder: Path) -> None:
    """The run is over: nobody needs them any more."""
    for name in (_CERTIFICATE, _KEY):
        (folder / name).unlink(missing_ok=True)

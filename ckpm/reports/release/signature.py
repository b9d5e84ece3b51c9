"""The detached signature of SHA256SUMS, made and checked with ssh-keygen, in the namespace ``ckpm-release``.

Format: PROTOCOL.sshsig of OpenSSH. Ed25519 and RSA keys give the same signature for the same file every time.
"""

from __future__ import annotations

import base64
import re
import subprocess
import textwrap
from pathlib import Path

from ckpm.base.bounded import read_bytes
from ckpm.base.errors import TrustError
from ckpm.reports.release.contents import CHECKSUMS, SIGNATURE

NAMESPACE = "ckpm-release"
_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
_PEM = re.compile(rb"-----BEGIN (?!OPENSSH)[A-Z ]*PRIVATE KEY-----")
_COLUMNS = 70  # of the lines between them, as ssh-keygen writes them


def sign(folder: Path, key: Path) -> None:
    """Sign a bundle's checksums with a private key, or a public one whose private key an agent holds."""
    _demand_key(key)
    _keygen("-Y", "sign", "-q", "-f", str(key), "-n", NAMESPACE, str(folder / CHECKSUMS))
    if not (folder / SIGNATURE).is_file():
        raise TrustError(f"{folder}/{CHECKSUMS}: ssh-keygen wrote no signature.", kind="signature")


def raw_signatures(data: bytes, key: Path | None) -> list[str]:
    """The signature of ``data`` with a private key that openssl reads, in base64. Empty for another key.

    openssl reads RSA and ECDSA keys of ``ssh-keygen -m PKCS8``. It can't read OpenSSH's own format, nor ask an agent.
    """
    if key is None:
        return []
    _demand_key(key)
    try:
        text = read_bytes(key)
    except (OSError, ValueError) as error:
        raise TrustError(f"{key}: can't be read as a key: {error}.", kind="signature") from error
    if not _PEM.match(text):
        return []
    try:
        done = subprocess.run(
            ["openssl", "dgst", "-sha256", "-sign", str(key)], input=data, capture_output=True, check=False
        )
    except OSError as error:
        raise TrustError(
            f"openssl can't be started ({error.strerror}): install it, or sign with a key in OpenSSH's format.",
            kind="signature",
        ) from error
    if done.returncode:
        message = done.stderr.decode(errors="replace").strip()
        raise TrustError(f"{key}: openssl refuses the key: {message}", kind="signature")
    return [base64.b64encode(done.stdout).decode()]


def _demand_key(key: Path) -> None:
    if not key.is_file():
        raise TrustError(
            f"{key}: no such key. Make one with ssh-keygen -t rsa -m PKCS8, or sign elsewhere.", kind="signature"
        )


def check_whole(folder: Path) -> None:
    """Raise TrustError if the signature is not of this SHA256SUMS, whoever made it."""
    file = folder / SIGNATURE
    _demand_canonical(file)
    _keygen("-Y", "check-novalidate", "-n", NAMESPACE, "-s", str(file), data=_sums(folder))


def check_signer(folder: Path, allowed: Path) -> str:
    """The signer's name in an ``allowed_signers`` file (see ssh-keygen's manual)."""
    file = folder / SIGNATURE
    if not allowed.is_file():
        raise TrustError(f"{allowed}: no such file of allowed signers.", kind="signature")
    if not file.is_file():
        raise TrustError(
            f"{file}: missing: the bundle is not signed, and {allowed} can't vouch for it.", kind="signature"
        )
    _demand_canonical(file)
    principals = _keygen("-Y", "find-principals", "-n", NAMESPACE, "-s", str(file), "-f", str(allowed)).splitlines()
    if not principals:
        raise TrustError(f"{file}: the signer is not in {allowed}.", kind="signature")
    who = principals[0].strip()
    arguments = ("-Y", "verify", "-n", NAMESPACE, "-I", who, "-s", str(file), "-f", str(allowed))
    _keygen(*arguments, data=_sums(folder))
    return who


def _sums(folder: Path) -> bytes:
    try:
        return read_bytes(folder / CHECKSUMS)
    except (OSError, ValueError) as error:
        raise TrustError(f"{folder}/{CHECKSUMS}: can't be read: {error}.", kind="signature") from error


def _demand_canonical(file: Path) -> None:
    """Check that the signature is in canonical form, because readers of base64 overlook some changed bytes."""
    try:
        text = read_bytes(file).decode("ascii")
        lines = text.splitlines()
        blob = base64.b64decode("".join(lines[1:-1]), validate=True)
    except (OSError, ValueError) as error:
        raise TrustError(f"{file}: can't be read as a signature: {error}.", kind="signature") from error
    body = textwrap.wrap(base64.b64encode(blob).decode(), _COLUMNS)
    if text != "\n".join([_BEGIN, *body, _END, ""]):
        raise TrustError(f"{file}: not a signature of {CHECKSUMS} as ssh-keygen writes it.", kind="signature")


def _keygen(*arguments: str, data: bytes = b"") -> str:
    try:
        done = subprocess.run(["ssh-keygen", *arguments], input=data, capture_output=True, check=False)
    except OSError as error:
        raise TrustError(
            f"ssh-keygen can't be started ({error.strerror}): install OpenSSH's client 8.2 or newer.", kind="signature"
        ) from error
    if done.returncode:
        message = (done.stderr or done.stdout).decode(errors="replace").strip()
        file = arguments[arguments.index("-s") + 1] if "-s" in arguments else arguments[-1]
        raise TrustError(f"{file}: ssh-keygen refuses the signature of {CHECKSUMS}: {message}", kind="signature")
    return done.stdout.decode(errors="replace")

"""A registry on this machine for tests of real pulls. It has a small image, is down, or sends a wrong image.

It implements the part of the OCI distribution protocol that a pull by digest needs.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _layer() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("hello"))
    return buffer.getvalue()


def _image() -> tuple[bytes, dict[str, bytes]]:
    """A manifest and its blobs."""
    layer = _layer()
    packed = gzip.compress(layer, mtime=0)
    config = json.dumps(
        {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]}}
    ).encode()
    blobs = {_digest(config): config, _digest(packed): packed}
    described = [
        {"mediaType": kind, "digest": _digest(data), "size": len(data)}
        for kind, data in ((_CONFIG, config), (_LAYER, packed))
    ]
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": described[0], "layers": described[1:]}
    return json.dumps(manifest).encode(), blobs


class Registry(ThreadingHTTPServer):
    """A registry with a ``behaviour``.

    ``whole`` has one image, ``away`` answers 503, ``lying`` sends its manifest for any digest, and the blobs of
    ``damaged`` don't match their digests.
    """

    daemon_threads = True

    def __init__(self, behaviour: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behaviour = behaviour
        self.manifest, self.blobs = _image()
        self.requests: list[str] = []  # paths, without those of the greeting

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    @property
    def digest(self) -> str:
        """Digest of its image."""
        return _digest(self.manifest)

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Status, content type and content."""
        if self.behaviour == "away":
            return 503, "text/plain", b"try later"
        if path == "/v2/":
            return 200, "application/json", b"{}"
        reference = path.rpartition("/")[2]
        if "/blobs/" in path and reference in self.blobs:
            data = self.blobs[reference]
            return 200, "application/octet-stream", data[:-1] + b"?" if self.behaviour == "damaged" else data
        if "/manifests/" in path and (reference == self.digest or self.behaviour == "lying"):
            return 200, MANIFEST, self.manifest
        errors = {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}
        return 404, "application/json", json.dumps(errors).encode()


class _Handler(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        if self.path != "/v2/":
            self.server.requests.append(self.path)
        status, kind, data = self.server.answer(self.path)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Print nothing; the paths are in ``requests``."""


@contextmanager
def registry(behaviour: str) -> Iterator[Registry]:
    with Registry(behaviour) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def configuration(file: Path, *registries: Registry, search: Registry | None = None) -> Path:
    """Write a registries.conf: HTTP for these registries, and ``search`` for names without a registry."""
    lines = [f'unqualified-search-registries = ["{search.address}"]'] if search else []
    lines += [f'[[registry]]\nlocation = "{registry.address}"\ninsecure = true' for registry in registries]
    file.write_text("\n".join(lines) + "\n")
    return file

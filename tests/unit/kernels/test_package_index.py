"""Packages come from where pip is configured to look, and a setting that can't work is named."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from ckpm.base.entry import exit_code
from ckpm.base.errors import ServiceError, TrustError
from ckpm.kernels.upstream import package_index
from ckpm.kernels.upstream.package_index import download, pip_settings
from ckpm.matrix.dialects import upstreams

PACKAGE = msgspec.structs.replace(upstreams()["flash-attn"], size=8)
PAGE, FILE = "/simple/flash-attn/", f"/files/{PACKAGE.file}"
JSON = "application/vnd.pypi.simple.v1+json"
Answer = Callable[[BaseHTTPRequestHandler], None]
Answers = dict[str, Answer]
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def failure(settings: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The error of a download with these settings of pip; no server answers at the index."""
    settings = {"index-url": "http://127.0.0.1:9/simple/", **settings}
    monkeypatch.setattr(package_index, "pip_settings", lambda: settings)
    with pytest.raises(ServiceError) as caught:
        download(PACKAGE, tmp_path / "got")
    assert list(tmp_path.iterdir()) == []
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("index-url", "garbage", "pip's index-url is 'garbage': not a URL; write https://HOST/simple/ "),
        ("extra-index-url", "x y", "pip's extra-index-url is 'x': not a URL; "),
        ("find-links", "/dev/null/x", "pip's find-links is '/dev/null/x': it is neither an existing path nor a URL"),
        ("index-url", "ftp://user:secret@x/", "pip's index-url is '***@x/': not a URL; "),
        ("index-url", "user:sec@secret@x/", "pip's index-url is '***@x/': not a URL; "),
        ("index-url", "https://user:sec/secret@x/", "pip's index-url is '***@x/': not a URL; "),
        ("cert", "/dev/null/x", "pip's cert is '/dev/null/x': not a readable file of certificates (Not a "),
        ("cert", __file__, f"pip's cert is '{__file__}': not a readable file of certificates ("),
        ("client-cert", __file__, f"pip's client-cert is '{__file__}': not a readable file of a certificate"),
        ("timeout", "soon", "pip's timeout is 'soon': not a number of seconds"),
        ("timeout", "-1", "pip's timeout is '-1': not a number of seconds above 0"),
        ("proxy", "socks5://127.0.0.1:1", "pip's proxy (PIP_PROXY or pip's configuration): unusable as a proxy: "),
    ],
)
def test_unusable_setting_of_pip_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str, message: str
) -> None:
    output = failure({name: value}, monkeypatch, tmp_path)
    assert output.startswith(message)
    assert f"PIP_{name.upper().replace('-', '_')}" in output
    assert "secret" not in output


@pytest.mark.parametrize("value", ["garbage://user:secret@x", "socks5://user:secret@127.0.0.1:1"])
@pytest.mark.parametrize("variable", ["HTTP_PROXY", "https_proxy", "ALL_PROXY"])
def test_unusable_proxy_of_environment_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    output = failure({}, monkeypatch, tmp_path)
    assert output.startswith(f"{variable}: unusable as a proxy: ")
    assert output.endswith("Write http://HOST:PORT.")
    assert "secret" not in output


def test_broken_configuration_of_pip_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "pip.conf"
    config.write_text("no section\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    with pytest.raises(ServiceError, match=r"pip's configuration can't be read: .*pip\.conf.*Fix pip's files or the "):
        pip_settings()


def test_pipe_as_configuration_of_pip_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Pip waits for a writer that never comes."""
    config = tmp_path / "pip.conf"
    os.mkfifo(config)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.setattr(package_index, "_LIST_SECONDS", 1.0)
    with pytest.raises(ServiceError, match=r"did not end within 1 s\. Is one of pip's files a pipe, "):
        pip_settings()


def test_pip_s_settings_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "pip.conf"
    config.write_text("[global]\ntimeout = 7\nfind-links =\n    /a\n    /b\n[download]\ntimeout = 9\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    for name in ("PIP_FIND_LINKS", "PIP_TIMEOUT", "PIP_DEFAULT_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_PROXY", "http://127.0.0.1:1")
    settings = pip_settings()
    assert settings["timeout"] == "9"
    assert settings["find-links"].split() == ["/a", "/b"]
    assert settings["proxy"] == "http://127.0.0.1:1"


def test_quiet_pip_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A quiet pip lists nothing, and the mirror in its configuration would be passed over."""
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nno-index = true\nquiet = 2\nuser = true\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    for name in ("PIP_QUIET", "PIP_VERSION", "PIP_ISOLATED"):
        monkeypatch.setenv(name, "1")
    settings = pip_settings()
    assert settings["no-index"] == "true"
    assert not {"user", "quiet", "version"} & settings.keys()
    config.write_text("[global]\nversion = true\n")
    with pytest.raises(ServiceError, match=r"pip's configuration can't be read: .*: pip [0-9.]+ .* Fix pip's files"):
        pip_settings()


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Answers], str]]:
    """``index({path: answer})``: pip's index is a server on this machine, with a password; its address."""
    servers = []

    def serve(answers: Answers) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answers[self.path](self)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads, server.block_on_close = True, False
        threading.Thread(target=lambda: server.serve_forever(0.01), daemon=True).start()
        servers.append(server)
        address = f"127.0.0.1:{server.server_port}"
        monkeypatch.setattr(package_index, "pip_settings", lambda: {"index-url": f"http://me:p@ss@{address}/simple/"})
        return address

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def answer(body: bytes = b"", status: int = 200, **headers: str) -> Answer:
    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"Content_Type": "text/html", **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return send


def page(url: str) -> Answer:
    files = [{"filename": PACKAGE.file, "url": url, "hashes": {}}]
    return answer(json.dumps({"meta": {"api-version": "1.0"}, "files": files}).encode(), Content_Type=JSON)


def drip(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    with contextlib.suppress(ConnectionError):
        for _ in range(100):
            handler.wfile.write(b"x")
            time.sleep(0.1)


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({PAGE: answer(status=401)}, r"offer nothing; .*/simple/flash-attn/: Client Error\(401\): Unauthorized"),
        ({PAGE: answer(status=503)}, r"offer nothing; .*Server Error\(503\): Service Unavailable"),
        ({PAGE: page(FILE), FILE: answer(status=404)}, "Client error '404 Not Found' for url"),
        ({PAGE: page(FILE), FILE: answer(status=302, Location="file:///dev/zero")}, "leads to file:///dev/zero, which"),
        ({PAGE: page(f"file:///{PACKAGE.file}")}, "the configured indexes offer nothing"),
        ({PAGE: answer(b"[" * 900, Content_Type=JSON)}, "a page of the indexes can't be read: "),
        ({PAGE: answer(b"{", Content_Type=JSON)}, "a page of the indexes can't be read: Expecting property name"),
        ({PAGE: answer(b"x" * 2000)}, "a page of the indexes can't be read: .* is longer than 1,000 bytes"),
        ({PAGE: answer(b"x", Content_Encoding="gzip")}, r"can't be read: .* is compressed \(gzip\), although"),
    ],
)
def test_broken_index_is_named_with_status_and_without_password(
    index: Callable[[Answers], str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    answers: Answers,
    reason: str,
) -> None:
    record = tmp_path / "failures"
    monkeypatch.setenv("CKPM_FAILURES", str(record))
    monkeypatch.setattr(package_index, "LARGEST_FILE", 1000)
    caplog.set_level("DEBUG")
    address = index(answers)
    with pytest.raises(ServiceError, match=reason) as caught:
        download(PACKAGE, tmp_path / "got")
    assert "set pip's index-url" in str(caught.value)

    def fail() -> int:
        raise caught.value

    assert exit_code(fail) == 12
    for text in (str(caught.value), capsys.readouterr().err, record.read_text(), caplog.text):
        assert "ss@" not in text
    if "Error" in reason:
        assert f"http://***@{address}/" in str(caught.value)


def test_file_longer_than_in_table_is_refused(index: Callable[[Answers], str], tmp_path: Path) -> None:
    index({PAGE: page(FILE), FILE: answer(b"8 bytes.")})
    download(PACKAGE, tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == b"8 bytes."
    index({PAGE: page(FILE), FILE: answer(b"9 bytes..")})
    with pytest.raises(TrustError, match=r"longer than its 8 bytes \(matrix/upstreams\.yaml\)"):
        download(PACKAGE, tmp_path / "got")
    assert not (tmp_path / "got").exists()


@pytest.mark.parametrize("answers", [{PAGE: drip}, {PAGE: page(FILE), FILE: drip}], ids=["page", "file"])
def test_dripping_index_is_given_up(
    index: Callable[[Answers], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answers: Answers
) -> None:
    monkeypatch.setattr(package_index, "_WHOLE_SECONDS", 1.0)
    index(answers)
    with pytest.raises(ServiceError, match="not whole after 1 s"):
        download(msgspec.structs.replace(PACKAGE, size=1000), tmp_path / "got")

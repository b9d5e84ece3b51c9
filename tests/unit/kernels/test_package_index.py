"""Packages come from where pip is configured to look, and a setting that can't work is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckpm.base.errors import ServiceError
from ckpm.kernels.upstream import package_index
from ckpm.kernels.upstream.package_index import download, pip_settings

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
        download("flash-attn", "2.8.3.post2", "flash_attn-2.8.3.post2.tar.gz", tmp_path / "got")
    assert list(tmp_path.iterdir()) == []
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("index-url", "garbage", "pip's index-url is 'garbage': not a URL; write https://HOST/simple/ "),
        ("index-url", "http://[x", "pip's index-url is 'http://[x': not a URL; "),
        ("index-url", "https://", "pip's index-url is 'https://': not a URL; "),
        ("extra-index-url", "x y", "pip's extra-index-url is 'x': not a URL; "),
        ("find-links", "/dev/null/x", "pip's find-links is '/dev/null/x': it is neither an existing path nor a URL"),
        ("index-url", "ftp://user:secret@x/", "pip's index-url is 'ftp://***@x/': not a URL; "),
        ("cert", "/dev/null/x", "pip's cert is '/dev/null/x': not a readable file of certificates (Not a "),
        ("cert", __file__, f"pip's cert is '{__file__}': not a readable file of certificates ("),
        ("client-cert", "/dev/null/x", "pip's client-cert is '/dev/null/x': not a readable file of a certificate"),
        ("client-cert", __file__, f"pip's client-cert is '{__file__}': not a readable file of a certificate"),
        ("timeout", "soon", "pip's timeout is 'soon': not a number of seconds"),
        ("proxy", "garbage", "pip's proxy (PIP_PROXY or pip's configuration): unusable as a proxy: "),
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

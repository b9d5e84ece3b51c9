"""Download one file of a package from the index that pip is configured for.

pip itself builds an sdist when it downloads it (which for flash-attn needs a GPU toolchain); unearth finds the same
links and only fetches them. Index, find-links, certificates and time-out are read from pip's configuration.
"""

from __future__ import annotations

import ast
import os
import re
import ssl
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
from unearth import PackageFinder
from unearth.errors import UnpackError
from unearth.fetchers import PyPIClient

from ckpm.base.errors import ServiceError
from ckpm.base.files import name_write_errors


def pip_settings() -> Mapping[str, str]:
    """Return pip's global settings from its files and the environment, e.g. ``index-url``, ``cert``.

    ``pip config list`` prints ``:env:.name='value'``, ``global.name='value'`` and ``install.name='value'``; a more
    specific section wins, the environment most of all.
    """
    result = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, errors="replace", check=False
    )
    if result.returncode != 0:
        lines = (result.stderr.strip() or result.stdout.strip()).splitlines()
        raise ServiceError(
            f"pip's configuration can't be read: '{sys.executable} -m pip config list' ended with {result.returncode}"
            f"{': ' + ' '.join(lines[-3:]) if lines else ''}. Fix pip's files or the PIP_... variables.",
            kind="download",
        )
    settings: dict[str, str] = {}
    for section in ("global.", "download.", ":env:."):
        for line in result.stdout.splitlines():
            name, _, value = line.partition("=")
            if name.startswith(section):
                settings[name.removeprefix(section)] = ast.literal_eval(value)
    return settings


def download(package: str, version: str, file: str, destination: Path) -> None:
    """Fetch the file named ``file`` of ``package==version`` to ``destination``."""
    settings = pip_settings()
    with _client(settings) as client:
        _download(client, _finder(client, settings), package, version, file, destination)


def _client(settings: Mapping[str, str]) -> PyPIClient:
    timeout = settings.get("timeout") or settings.get("default-timeout") or "15"
    try:
        seconds = float(timeout)
    except ValueError as error:
        raise _unusable("timeout", timeout, "not a number of seconds") from error
    verify, cert = settings.get("cert"), settings.get("client-cert")
    try:
        context = ssl.create_default_context(cafile=verify) if verify else True
    except OSError as error:
        raise _unusable("cert", verify, f"not a readable file of certificates ({error.strerror or error})") from error
    try:
        if cert:
            ssl.create_default_context().load_cert_chain(cert)
    except OSError as error:
        reason = f"not a readable file of a certificate and its key ({error.strerror or error})"
        raise _unusable("client-cert", cert, reason) from error
    try:
        return PyPIClient(
            trusted_hosts=settings.get("trusted-host", "").split(),
            verify=context,
            cert=cert,
            proxy=settings.get("proxy"),
            timeout=seconds,
        )
    except (ValueError, ImportError, httpx2.InvalidURL) as error:
        why = "SOCKS is not served" if isinstance(error, ImportError) else error
        raise ServiceError(
            f"{_proxies(settings)}: unusable as a proxy: {why}. Write http://HOST:PORT.", kind="download"
        ) from error


def _proxies(settings: Mapping[str, str]) -> str:
    """Return the names of proxy settings. Their values may contain a password and are not shown."""
    names = [name for name in os.environ if name.lower() in ("http_proxy", "https_proxy", "all_proxy", "no_proxy")]
    pip = ["pip's proxy (PIP_PROXY or pip's configuration)"] if settings.get("proxy") else []
    return ", ".join([*pip, *sorted(names)]) or "the system's proxy"


def _finder(client: PyPIClient, settings: Mapping[str, str]) -> PackageFinder:
    """Return a finder with pip's indexes. A finder without any uses the public index, as pip does."""
    for name in ("index-url", "extra-index-url"):
        for url in settings.get(name, "").split():
            if not (Path(url).exists() or _is_url(url)):
                raise _unusable(name, url, "not a URL; write https://HOST/simple/ or file:///FOLDER")
    for location in settings.get("find-links", "").split():
        if not (Path(location).exists() or _is_url(location)):
            raise _unusable("find-links", location, "it is neither an existing path nor a URL")
    if settings.get("no-index", "") in ("1", "true", "yes", "on"):
        nowhere = Path(__file__).with_name("no-index").as_uri()
        finder = PackageFinder(session=client, find_links=[nowhere], ignore_compatibility=True)
    else:
        index = settings.get("index-url", "").split()
        finder = PackageFinder(session=client, index_urls=index, ignore_compatibility=True)
        for url in settings.get("extra-index-url", "").split():
            finder.add_index_url(url)
    for location in settings.get("find-links", "").split():
        finder.add_find_links(location)
    return finder


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme == "file" or (parts.scheme in ("http", "https") and bool(parts.hostname))
    except ValueError:
        return False


def _unusable(name: str, value: str | None, reason: str) -> ServiceError:
    variable = f"PIP_{name.upper().replace('-', '_')}"
    return ServiceError(
        f"pip's {name} is '{_without_password(value or '')}': {reason} ({variable} or pip's configuration).",
        kind="download",
    )


def _without_password(text: str) -> str:
    return re.sub(r"//[^/@]*@", "//***@", text)


def _download(
    client: PyPIClient, finder: PackageFinder, package: str, version: str, file: str, destination: Path
) -> None:
    try:
        matches = finder.find_matches(f"{package}=={version}", allow_prereleases=True)
    except (httpx2.HTTPError, httpx2.InvalidURL, UnpackError, OSError, ValueError) as error:
        raise _unreachable(package, version, file, str(error)) from error
    exact = [match.link for match in matches if match.link and match.link.filename == file]
    if not exact:
        names = ", ".join(match.link.filename for match in matches if match.link) or "nothing"
        raise _unreachable(package, version, file, f"the configured indexes offer {names}")
    try:
        with client.stream("GET", exact[0].normalized, follow_redirects=True) as response:
            response.raise_for_status()
            with name_write_errors(destination, "set CKPM_CACHE to another folder"), destination.open("wb") as stream:
                for chunk in response.iter_bytes(1 << 20):
                    stream.write(chunk)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise _unreachable(package, version, file, str(error)) from error


def _unreachable(package: str, version: str, file: str, reason: str) -> ServiceError:
    return ServiceError(
        f"{package} {version}: {file} is neither in the cache nor to be downloaded: {reason}. "
        "Connect to a package index, or set pip's index-url or find-links (PIP_INDEX_URL, PIP_FIND_LINKS) to a mirror.",
        kind="download",
    )

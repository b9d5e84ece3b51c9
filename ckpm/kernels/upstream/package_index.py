"""Download one file of a package from the index that pip is configured for.

pip itself builds an sdist when it downloads it (which for flash-attn needs a GPU toolchain); unearth finds the same
links and only fetches them. Index, find-links, certificates and time-out are read from pip's configuration. An index is
not trusted: what it sends is bounded in size and time.
"""

from __future__ import annotations

import ast
import contextlib
import logging
import math
import os
import shlex
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urljoin, urlsplit

import httpx2
from unearth import PackageFinder
from unearth.errors import UnpackError
from unearth.fetchers import PyPIClient

from ckpm.base.bounded import LARGEST_FILE, BoundsError, parse_json
from ckpm.base.errors import ServiceError, TrustError
from ckpm.base.files import name_write_errors
from ckpm.base.processes import PIP_SETTINGS, python_command, tool_environment
from ckpm.matrix.dialects import PackagedUpstream

_WHOLE_SECONDS = 1800.0  # of a download with all pages of the indexes: 40 MB at 22 kB/s
_LIST_SECONDS = 60.0  # of pip's own settings, which pip reads from a few files
_SHOWN_NAMES = 5
_TRUE = ("y", "yes", "t", "true", "on", "1")  # as pip reads them
# What unearth raises for a page of another structure than an index's.
_OF_A_PAGE = (LookupError, TypeError, AttributeError)
_FAILURES = (httpx2.HTTPError, httpx2.InvalidURL, UnpackError, OSError, ValueError, *_OF_A_PAGE)
logging.getLogger("httpx2").setLevel(logging.WARNING)  # below, it logs each URL with its password


def pip_settings() -> Mapping[str, str]:
    """Return pip's settings that lead to packages, from its files and the environment: ``index-url``, ``cert``.

    ``pip config list`` prints ``:env:.name='value'``, ``global.name='value'`` and ``install.name='value'``; a more
    specific section wins, the environment most of all. Options that shorten the list are off: a file may contain them.
    """
    complete = {f"PIP_{name}": "0" for name in ("QUIET", "USER", "GLOBAL", "SITE")}
    command = python_command("-m", "pip", "config", "list")
    try:
        result = subprocess.run(
            command,
            env=tool_environment(complete),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_LIST_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise ServiceError(
            f"pip's configuration can't be read: '{shlex.join(command)}' did not end within {_LIST_SECONDS:.0f} s. "
            "Is one of pip's files a pipe, or on a disk that doesn't answer? PIP_CONFIG_FILE names another file.",
            kind="download",
        ) from error
    # a list has a line of this call's own; with `version = true` in a file, pip prints its version instead
    if result.returncode != 0 or ":env:.quiet='0'" not in result.stdout.splitlines():
        lines = (result.stderr.strip() or result.stdout.strip()).splitlines()
        raise ServiceError(
            f"pip's configuration can't be read: '{shlex.join(command)}' ended with {result.returncode}"
            f"{': ' + ' '.join(lines[-3:]) if lines else ''}. Fix pip's files or the PIP_... variables.",
            kind="download",
        )
    settings: dict[str, str] = {}
    for section in ("global.", "download.", ":env:."):
        for line in result.stdout.splitlines():
            name, _, value = line.partition("=")
            if name.startswith(section):
                settings[name.removeprefix(section)] = ast.literal_eval(value)
    return {name: value for name, value in settings.items() if name in PIP_SETTINGS}


def download(package: PackagedUpstream, destination: Path) -> None:
    """Fetch the file of a package to ``destination``. A file that is longer than in the table is removed."""
    settings = pip_settings()
    with _client(settings, package.size) as client:
        finder = _finder(client, settings)
        try:
            _within(_WHOLE_SECONDS, lambda: _download(client, finder, package, _is_local(settings), destination))
        except TimeoutError as error:
            raise _unreachable(package, f"not whole after {_WHOLE_SECONDS:.0f} s") from error


def _within(seconds: float, call: Callable[[], None]) -> None:
    """Make a call in another thread. Raises TimeoutError if it takes longer; the thread ends with this process."""
    outcome: Future[None] = Future()

    def run() -> None:
        try:
            call()
            outcome.set_result(None)
        except BaseException as error:  # of whatever kind: it is raised where the call is awaited
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True, name="download").start()
    outcome.result(seconds)


class _BoundedClient(PyPIClient):  # type: ignore[misc]  # its package has no types
    """A client for servers that are not trusted: no redirect to a file, no large page, no odd JSON."""

    def __init__(self, largest: int, **options: Any) -> None:
        # a compressed page could be any size
        super().__init__(headers={"Accept-Encoding": "identity"}, event_hooks={"response": [self._bound]}, **options)
        self._largest = largest

    def get(self, url: httpx2.URL | str, **options: Any) -> httpx2.Response:
        response = super().get(url, **options)
        if "json" in response.headers.get("Content-Type", ""):
            parse_json(response.text)
        return response

    def _bound(self, response: httpx2.Response) -> None:
        location = urljoin(str(response.url), response.headers.get("Location", ""))
        if response.has_redirect_location and not location.startswith(("http://", "https://")):
            raise BoundsError(f"{response.url}: it leads to {location}, which is not on the network")
        if (encoding := response.headers.get("Content-Encoding", "identity")) != "identity":
            raise BoundsError(f"{response.url}: it is compressed ({encoding}), although that was not asked for")
        response.stream = _BoundedStream(response, self._largest)


class _BoundedStream(httpx2.SyncByteStream):  # type: ignore[misc]
    """The body of a response, up to a number of bytes."""

    def __init__(self, response: httpx2.Response, largest: int) -> None:
        assert isinstance(response.stream, httpx2.SyncByteStream)
        self._stream, self._largest, self._url = response.stream, largest, response.url

    def __iter__(self) -> Iterator[bytes]:
        count = 0
        for chunk in self._stream:
            count += len(chunk)
            if count > self._largest:
                raise BoundsError(f"{self._url}: it is longer than {self._largest:,} bytes")
            yield chunk

    def close(self) -> None:
        self._stream.close()


def _client(settings: Mapping[str, str], size: int) -> PyPIClient:
    timeout = settings.get("timeout") or settings.get("default-timeout") or "15"
    try:
        seconds = float(timeout)
    except ValueError as error:
        raise _unusable("timeout", timeout, "not a number of seconds") from error
    if not (math.isfinite(seconds) and seconds > 0):
        raise _unusable("timeout", timeout, "not a number of seconds above 0")
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
        return _BoundedClient(
            max(LARGEST_FILE, size + 1),
            trusted_hosts=settings.get("trusted-host", "").split(),
            verify=context,
            cert=cert,
            proxy=settings.get("proxy"),
            timeout=min(seconds, _WHOLE_SECONDS),
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
    if settings.get("no-index", "").lower() in _TRUE:
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


def _is_local(settings: Mapping[str, str]) -> bool:
    """Return True if one of pip's indexes and find-links is on this machine: its links may lead to files."""
    values = (settings.get(name, "") for name in ("index-url", "extra-index-url", "find-links"))
    return any(urlsplit(source).scheme in ("", "file") for value in values for source in value.split())


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        has_port = parts.port is None or parts.port > 0  # raises for a password with a /, which is read as the port
        return parts.scheme == "file" or (parts.scheme in ("http", "https") and bool(parts.hostname) and has_port)
    except ValueError:
        return False


def _unusable(name: str, value: str | None, reason: str) -> ServiceError:
    variable = f"PIP_{name.upper().replace('-', '_')}"
    shown = f"***@{str(value).rpartition('@')[2]}" if "@" in str(value) else value  # no URL: a password has no bounds
    return ServiceError(f"pip's {name} is '{shown}': {reason} ({variable} or pip's configuration).", kind="download")


@contextlib.contextmanager
def _collected_warnings() -> Iterator[list[str]]:
    """The warnings of unearth, which logs the status of an index that refuses and finds nothing there."""
    messages: list[str] = []
    handler, logger = logging.Handler(), logging.getLogger("unearth")
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)


def _download(
    client: PyPIClient, finder: PackageFinder, package: PackagedUpstream, local: bool, destination: Path
) -> None:
    """Download a package. Links to files of this machine are followed only with ``local`` indexes."""
    requirement = f"{package.package}=={package.version}"
    try:
        with _collected_warnings() as warnings:
            matches = finder.find_matches(requirement, allow_prereleases=True)
    except _FAILURES as error:
        raise _unreachable(package, f"a page of the indexes can't be read: {_first_line(error)}") from error
    links = [match.link for match in matches if match.link and (local or not match.link.is_file)]
    exact = [link for link in links if link.filename == package.file]
    if not exact:
        more = f" and {len(links) - _SHOWN_NAMES} more" if len(links) > _SHOWN_NAMES else ""
        names = ", ".join(link.filename for link in links[:_SHOWN_NAMES]) or "nothing"
        raise _unreachable(package, "; ".join([f"the configured indexes offer {names}{more}", *warnings]))
    try:
        with client.stream("GET", exact[0].normalized, follow_redirects=True) as response:
            response.raise_for_status()
            with name_write_errors(destination, "set CKPM_CACHE to another folder"), destination.open("wb") as stream:
                _write(response, stream, package, destination)
    except _FAILURES as error:
        raise _unreachable(package, _first_line(error)) from error


def _write(response: httpx2.Response, stream: BinaryIO, package: PackagedUpstream, destination: Path) -> None:
    """Write a response to a file; remove a file that is longer than the package's."""
    for chunk in response.iter_bytes(1 << 20):
        stream.write(chunk)
        if stream.tell() > package.size:
            destination.unlink()
            raise TrustError(
                f"{package.file}: longer than its {package.size:,} bytes (matrix/upstreams.yaml). The file was thrown "
                "away. Check the package index that pip is configured for.",
                kind="checksum",
            )


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def _unreachable(package: PackagedUpstream, reason: str) -> ServiceError:
    return ServiceError(
        f"{package.package} {package.version}: {package.file} is neither in the cache nor to be downloaded: {reason}. "
        "Connect to a package index, or set pip's index-url or find-links (PIP_INDEX_URL, PIP_FIND_LINKS) to a mirror.",
        kind="download",
    )

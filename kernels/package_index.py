"""One file of a package, from whatever index pip is configured for.

pip itself builds an sdist before it hands it over (which for flash-attn needs a GPU toolchain); unearth finds the same
links and only fetches them. Index, find-links, certificates and time-out are read from pip's configuration.
"""

from __future__ import annotations

import ast
import ssl
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import httpx2
from unearth import PackageFinder
from unearth.errors import UnpackError
from unearth.fetchers import PyPIClient

from kernels.errors import DownloadError
from kernels.files import disk_full_is_an_error


def pip_settings() -> Mapping[str, str]:
    """pip's global settings from its files and the environment, e.g. ``index-url``, ``cert``.

    ``pip config list`` prints ``:env:.name='value'``, ``global.name='value'`` and ``install.name='value'``; a more
    specific section wins, the environment most of all.
    """
    result = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise DownloadError(f"pip's configuration can't be read, mend it: {result.stderr.strip()}")
    settings: dict[str, str] = {}
    for section in ("global.", "download.", ":env:."):
        for line in result.stdout.splitlines():
            name, _, value = line.partition("=")
            if name.startswith(section):
                settings[name.removeprefix(section)] = ast.literal_eval(value)
    return settings


def download(package: str, version: str, file: str, place: Path) -> None:
    """Fetch the file named ``file`` of ``package==version`` to ``place``.

    Raises:
        DownloadError: no index answers, or none has the file; the message says what to set.
        DiskFullError: the disk is full.
    """
    settings = pip_settings()
    with PyPIClient(
        trusted_hosts=settings.get("trusted-host", "").split(),
        verify=ssl.create_default_context(cafile=settings["cert"]) if settings.get("cert") else True,
        cert=settings.get("client-cert"),
        proxy=settings.get("proxy"),
        timeout=float(settings.get("timeout") or settings.get("default-timeout") or 15),
    ) as client:
        _download(client, _finder(client, settings), package, version, file, place)


def _finder(client: PyPIClient, settings: Mapping[str, str]) -> PackageFinder:
    """Where pip would look. A finder without any place takes the public index by itself, as pip does."""
    if settings.get("no-index", "") in ("1", "true", "yes", "on"):
        nowhere = Path(__file__).with_name("no-index").as_uri()
        finder = PackageFinder(session=client, find_links=[nowhere], ignore_compatibility=True)
    else:
        index = settings.get("index-url", "").split()
        finder = PackageFinder(session=client, index_urls=index, ignore_compatibility=True)
        for url in settings.get("extra-index-url", "").split():
            finder.add_index_url(url)
    for place in settings.get("find-links", "").split():
        finder.add_find_links(place)
    return finder


def _download(client: PyPIClient, finder: PackageFinder, package: str, version: str, file: str, place: Path) -> None:
    try:
        found = finder.find_matches(f"{package}=={version}", allow_prereleases=True)
    except (httpx2.HTTPError, UnpackError, OSError) as error:
        raise _unreachable(package, version, file, str(error)) from error
    exact = [match.link for match in found if match.link and match.link.filename == file]
    if not exact:
        names = ", ".join(match.link.filename for match in found if match.link) or "nothing"
        raise _unreachable(package, version, file, f"the configured indexes offer {names}")
    try:
        with client.stream("GET", exact[0].normalized, follow_redirects=True) as response:
            response.raise_for_status()
            with disk_full_is_an_error(place), place.open("wb") as stream:
                for chunk in response.iter_bytes(1 << 20):
                    stream.write(chunk)
    except httpx2.HTTPError as error:
        raise _unreachable(package, version, file, str(error)) from error


def _unreachable(package: str, version: str, file: str, reason: str) -> DownloadError:
    return DownloadError(
        f"{package} {version}: {file} is neither in the cache nor to be downloaded: {reason}. "
        "Connect to a package index, or set pip's index-url or find-links (PIP_INDEX_URL, PIP_FIND_LINKS) to a mirror."
    )

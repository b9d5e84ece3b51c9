"""A headless Chromium, driven over the DevTools protocol: no driver to match its version, no port, no dependency.

With ``--remote-debugging-pipe`` it reads commands from file descriptor 3 and writes answers and events to 4: JSON, each
ended by a NUL. Commands and events: https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING = (
    f"no Chromium: none of {', '.join(NAMES)} is in PATH, and the report is looked at in a real browser. "
    "Debian: apt-get install chromium. Elsewhere: install Chromium or Google Chrome."
)
_FLAGS = (
    "--headless", "--remote-debugging-pipe", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--no-sandbox",  # it refuses to sandbox in a container and as root; the one page it opens is ours
)  # fmt: skip
_PATIENCE = 120  # seconds for one answer; a page of 40,000 cases on a busy machine takes a few
_KEYS = {  # name: virtual key code, text
    "Tab": (9, ""),
    "Enter": (13, "\r"),
    " ": (32, " "),
    "ArrowDown": (40, ""),
}


class BrowserError(Exception):
    """Chromium ended, did not answer, or refused a command; a script in the page raised."""


def find() -> str | None:
    """The browser's path, None if there is none."""
    return next((place for name in NAMES if (place := shutil.which(name))), None)


class Browser:
    """A browser with an empty profile in ``folder``; a context manager that ends it."""

    def __init__(self, command: str, folder: Path) -> None:
        self._log = folder / "chromium.log"
        # the shell turns the pipes of stdin and stdout into descriptors 3 and 4
        wired = ("sh", "-c", 'exec "$@" 3<&0 4>&1 </dev/null >&2', "sh")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*wired, command, *_FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdin
        assert self._process.stdout
        self._out, self._in = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._buffer = b""
        self._number = 0
        self._events: list[Mapping[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        with self._process:  # closes its pipes and waits
            pass

    def call(self, method: str, session: str | None = None, **params: Any) -> Mapping[str, Any]:
        """A command's result. Raises BrowserError."""
        self._number += 1
        message = {
            "id": self._number,
            "method": method,
            "params": params,
            **({"sessionId": session} if session else {}),
        }
        self._write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive(method)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                found: Mapping[str, Any] = answer["result"]
                return found
            self._events.append(answer)

    def events(self, session: str) -> list[Mapping[str, Any]]:
        """What a session's page told so far, oldest first."""
        return [event for event in self._events if event.get("sessionId") == session]

    def wait(self, session: str, method: str) -> None:
        """Until the session has told of ``method``. Raises BrowserError."""
        while not any(event.get("method") == method for event in self.events(session)):
            self._events.append(self._receive(method))

    def _write(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self._out, data) :]
        except OSError as error:
            raise BrowserError(self._ended()) from error

    def _receive(self, what: str) -> Mapping[str, Any]:
        until = time.monotonic() + _PATIENCE
        while b"\0" not in self._buffer:
            if not select.select([self._in], [], [], max(0.0, until - time.monotonic()))[0]:
                raise BrowserError(f"{what}: Chromium did not answer within {_PATIENCE} s; see {self._log}")
            found = os.read(self._in, 1 << 20)
            if not found:
                raise BrowserError(self._ended())
            self._buffer += found
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: Mapping[str, Any] = json.loads(line)
        return message

    def _ended(self) -> str:
        said = self._log.read_text(errors="replace").strip().splitlines()[-5:]
        return "\n".join([f"Chromium ended; the end of {self._log}:", *said])


class Page:
    """A tab of its own without a network, ``width`` x ``height`` CSS pixels, that holds ``file``; a context manager."""

    def __init__(
        self,
        browser: Browser,
        file: Path,
        *,
        width: int = 1280,
        height: int = 800,
        scheme: str = "light",
        media: str = "",
    ) -> None:
        self._browser = browser
        self._target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = browser.call("Target.attachToTarget", targetId=self._target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        none = {"latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        self.call("Network.emulateNetworkConditions", offline=True, **none)
        self.resize(width, height)
        self.call(
            "Emulation.setEmulatedMedia",
            media=media,
            features=[
                {"name": "prefers-color-scheme", "value": scheme},
                {"name": "prefers-reduced-motion", "value": "reduce"},
            ],
        )
        self.address = file.absolute().as_uri()
        self.call("Page.navigate", url=self.address)
        browser.wait(self._session, "Page.loadEventFired")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)

    def call(self, method: str, **params: Any) -> Mapping[str, Any]:
        return self._browser.call(method, self._session, **params)

    def resize(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def run(self, function: str, *arguments: Any) -> Any:
        """What a JavaScript function returns for JSON arguments. Raises BrowserError: it raised."""
        words = ", ".join(json.dumps(one) for one in arguments)
        answer = self.call(
            "Runtime.evaluate", expression=f"({function})({words})", returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            output = answer["exceptionDetails"]
            raise BrowserError(str(output.get("exception", {}).get("description", output["text"])))
        return answer["result"].get("value")

    def press(self, key: str, *, shift: bool = False) -> None:
        """A key of the keyboard: one of _KEYS."""
        code, text = _KEYS[key]
        common = {"key": key, "code": key.replace(" ", "Space"), "windowsVirtualKeyCode": code, "modifiers": 8 * shift}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text: str) -> None:
        """Into what has the focus."""
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """With the mouse, on the middle of the first element that fits. Raises BrowserError: there is none."""
        x, y = self.run(
            """(selector) => {
              const found = document.querySelector(selector);
              if (!found) throw new Error("nothing fits " + selector);
              found.scrollIntoView({ block: "center", inline: "center", behavior: "instant" });
              const { x, y, width, height } = found.getBoundingClientRect();
              return [x + width / 2, y + height / 2];
            }""",
            selector,
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def requests(self) -> list[str]:
        """The addresses that the page asked for, its own first."""
        return [
            event["params"]["request"]["url"]
            for event in self._browser.events(self._session)
            if event["method"] == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[str]:
        """What a developer would find in red or yellow in the console."""
        found = []
        for event in self._browser.events(self._session):
            params = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"]["text"]))
            elif event["method"] == "Log.entryAdded" and params["entry"]["level"] in ("warning", "error"):
                found.append(str(params["entry"]["text"]))
            elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in ("warning", "error", "assert"):
                found.append(str(params["args"]))
        return found

    def screenshot(self, file: Path, *, whole: bool = False) -> None:
        """As PNG: what is in the window, or the whole page."""
        clip: dict[str, Any] = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"clip": {**size, "scale": 1}, "captureBeyondViewport": True}
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", **clip)["data"]))

    def pdf(self, file: Path) -> None:
        """As the print dialogue would, in the paper that the page asks for."""
        file.write_bytes(base64.b64decode(self.call("Page.printToPDF", preferCSSPageSize=True)["data"]))

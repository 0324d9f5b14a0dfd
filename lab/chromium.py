"""A headless Chromium, driven through its own protocol over a pipe: pages as people see and use them.

There is no browser in the package index, and none is fetched: it is the distribution's (``chromium``), and
what needs it is left out, and says so, where there is none.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SOON = 60.0
"""Seconds: of a machine on which five others work."""
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_SWITCHES = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--disable-sync", "--disable-extensions", "--mute-audio", "--remote-debugging-pipe",
)  # fmt: skip


class Browser:
    """Belongs to one test session; each ``Tab`` is a profile of its own."""

    def __init__(self, folder: Path) -> None:
        assert CHROMIUM is not None
        here, theirs = os.pipe(), os.pipe()
        high = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 10) for one in (here[0], theirs[1])]

        def pass_on() -> None:
            """It reads what it is told from 3, and answers at 4."""
            for one, number in zip(high, (3, 4), strict=True):
                os.dup2(one, number)

        self._process = subprocess.Popen(
            [CHROMIUM, *_SWITCHES, f"--user-data-dir={folder}", "about:blank"],
            pass_fds=(3, 4),
            preexec_fn=pass_on,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for one in (here[0], theirs[1], *high):
            os.close(one)
        self._to = os.fdopen(here[1], "wb", buffering=0)
        self._from = os.fdopen(theirs[0], "rb")
        self._number = 0
        self._rest = b""
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **params: object) -> dict[str, Any]:
        """What it answers to a command. Raises ``RuntimeError`` with its error."""
        self._number += 1
        asked: dict[str, object] = {"id": self._number, "method": method, "params": params}
        if session is not None:
            asked["sessionId"] = session
        self._to.write(json.dumps(asked).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == self._number:
                if "error" in told:
                    raise RuntimeError(f"{method}: {told['error']['message']}")
                result: dict[str, Any] = told["result"]
                return result
            self.events.append(told)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._from.fileno(), 1 << 20)
            if not piece:
                raise RuntimeError("the browser has ended")
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        told: dict[str, Any] = json.loads(message)
        return told

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._to.close()
        self._from.close()


class Tab:
    """One page, in a profile of its own."""

    def __init__(self, browser: Browser, *, width: int, height: int, dark: bool) -> None:
        self._browser = browser
        self._context = browser.call("Target.createBrowserContext")["browserContextId"]
        target = browser.call("Target.createTarget", url="about:blank", browserContextId=self._context)
        self._target = target["targetId"]
        attached = browser.call("Target.attachToTarget", targetId=self._target, flatten=True)
        self._session = attached["sessionId"]
        phone = width < 600
        self.call("Page.enable")
        self.call("Runtime.enable")
        self.call("Log.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=2 if phone else 1, mobile=phone,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def call(self, method: str, **params: object) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript, waited for where it is a promise."""
        told = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in told:
            raise RuntimeError(told["exceptionDetails"].get("exception", {}).get("description", "it failed"))
        return told["result"].get("value")

    def until(self, expression: str, every: float = 0.1) -> None:
        """Wait until an expression is true; it is looked at ``every`` so many seconds."""
        deadline = time.monotonic() + SOON
        while True:
            try:
                if self.evaluate(f"Boolean({expression})"):
                    return
                why = ""
            except RuntimeError as error:  # of a page that is being left
                why = str(error)
            if time.monotonic() > deadline:
                raise AssertionError(f"never true: {expression} {why}\n{self.text()}\n{self.problems()}")
            time.sleep(every)

    def text(self) -> str:
        """All that the page says."""
        return str(self.evaluate("document.body ? document.body.innerText : ''"))

    def press(self, key: str, *, text: str = "", control: bool = False) -> None:
        """A key, where the focus is."""
        code = {"Enter": 13, "Tab": 9, "Escape": 27}.get(key, 0)
        held = {"key": key, "modifiers": 2 if control else 0, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **held)
        self.call("Input.dispatchKeyEvent", type="keyUp", **held)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def problems(self) -> list[str]:
        """What the browser itself has complained of in this tab: errors, and what a policy has stopped."""
        found = []
        for told in self._browser.events:
            if told.get("sessionId") != self._session:
                continue
            if told["method"] == "Log.entryAdded" and told["params"]["entry"]["level"] == "error":
                found.append(f"{told['params']['entry']['text']} {told['params']['entry'].get('url', '')}")
            if told["method"] == "Runtime.exceptionThrown":
                details = told["params"]["exceptionDetails"]
                found.append(details.get("exception", {}).get("description") or details["text"])
        return found

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """A PNG of what is seen, or of the whole page."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=whole, format="png")
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)
        self._browser.call("Target.disposeBrowserContext", browserContextId=self._context)


@contextmanager
def tab(browser: Browser, *, width: int = 1280, height: int = 900, dark: bool = False) -> Iterator[Tab]:
    made = Tab(browser, width=width, height=height, dark=dark)
    try:
        yield made
    finally:
        made.close()

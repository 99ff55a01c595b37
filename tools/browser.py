"""Headless Chromium, driven by chromedriver: for the tests of the page and its pictures.

Both are the system's. Nothing is downloaded, and nothing is asked of another machine.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from selenium.webdriver import ActionChains, Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

__all__ = ["Browser", "Keys", "missing"]

WAIT_S = 30.0
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-prefers-reduced-motion",
)
# What the page does that it should not: gathered before its own scripts run.
_WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation",
    (event) => window.violations.push(`policy: ${event.violatedDirective} ${event.blockedURI}`));
addEventListener("error", (event) => window.violations.push(`error: ${event.message}`));
addEventListener("unhandledrejection",
    (event) => window.violations.push(`rejection: ${event.reason}`));
"""


def missing() -> str | None:
    """Which program is not here."""
    names = ("chromium", "chromedriver")
    return next((name for name in names if shutil.which(name) is None), None)


class Browser:
    """A browser with a profile of its own."""

    def __init__(self, profile: Path, *, width: int = 1280, height: int = 900) -> None:
        """``profile``: a directory for it."""
        options = ChromeOptions()
        options.binary_location = shutil.which("chromium") or ""
        for flag in (*_FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
        self.driver = Chrome(options, Service(executable_path=shutil.which("chromedriver")))
        self.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _WATCH})
        self._url = ""

    def close(self) -> None:
        """End it."""
        self.driver.quit()

    # ---- the page ----

    def open(self, url: str, user: str = "guest", password: str = "guest") -> None:
        """The page at ``url``, as a user."""
        parts = urlsplit(url)
        named = parts._replace(netloc=f"{user}:{password}@{parts.netloc}", path="/page/session")
        self.driver.get(named.geturl())  # from here on the browser knows the password
        self.driver.get(url)
        self._url = url
        self.wait(lambda: self.state() == "live")

    def go(self, place: str) -> None:
        """A view, as "queues?page=2"; returns when it has figures."""
        self.driver.execute_script("location.hash = arguments[0]", f"#{place}")
        self.driver.execute_script("document.getElementById('state').dataset.state = 'waiting'")
        self.wait(lambda: self.state() == "live")

    def state(self) -> str | None:
        """Whether figures come: "live", "waiting", "refused", "trouble"."""
        found = self.script("return document.getElementById('state')?.dataset.state ?? null")
        return None if found is None else str(found)

    def script(self, code: str, *arguments: object) -> Any:
        """What ``code`` returns."""
        return self.driver.execute_script(code, *arguments)

    def find(self, selector: str) -> WebElement:
        """The first element, once it is there."""
        self.wait(lambda: bool(self.all(selector)), f"no {selector}")
        return self.all(selector)[0]

    def all(self, selector: str) -> list[WebElement]:
        """Those that are there."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str = "main") -> str:
        """What an element shows; read at once, as figures come and go."""
        code = "return document.querySelector(arguments[0])?.innerText ?? ''"
        return str(self.script(code, selector))

    def press(self, label: str, within: str = "main") -> None:
        """The button whose text this is."""
        self.wait(lambda: self._press(label, within), f"no button {label!r} in {within}")

    def _press(self, label: str, within: str) -> bool:
        code = """
            const [label, within] = arguments;
            const found = [...document.querySelectorAll(`${within} button`)]
                .find((each) => each.innerText.trim() === label && !each.disabled);
            found?.focus();
            found?.click();
            return Boolean(found);
        """
        return bool(self.script(code, label, within))

    def fill(self, label: str, value: str | bool, within: str = "dialog") -> None:
        """The field whose label this is, or begins so."""
        code = """
            const [label, value, within] = arguments;
            const found = [...document.querySelectorAll(`${within} label`)]
                .find((each) => each.innerText.trim().startsWith(label));
            const field = document.getElementById(found.htmlFor);
            if (typeof value === "boolean") {
                field.checked = value;
            } else {
                field.value = value;
            }
            field.dispatchEvent(new Event("input", { bubbles: true }));
        """
        self.find(f"{within} label")
        self.script(code, label, value, within)

    def confirm(self, label: str) -> str:
        """Press the dialog's button; returns what the page tells when it is done."""
        self.script("document.getElementById('messages').replaceChildren()")
        self.press(label, "dialog")
        self.wait(
            lambda: not self.all("dialog") and self.text("#messages") != "",
            lambda: f"not done: {self.text('dialog')}",
        )
        return self.text("#messages .message span")

    def keys(self, *keys: str) -> None:
        """Press them, wherever the focus is; what begins with SHIFT with that held."""
        for key in keys:
            actions = ActionChains(self.driver)
            if key.startswith(Keys.SHIFT):
                actions.key_down(Keys.SHIFT).send_keys(key[1:]).key_up(Keys.SHIFT)
            else:
                actions.send_keys(key)
            actions.perform()

    def focused(self) -> str:
        """The text, or the label, of what has the focus."""
        code = """
            const found = document.activeElement;
            return found.labels?.[0]?.innerText || found.innerText || found.tagName;
        """
        return str(self.script(code)).strip()

    def wait(
        self,
        holds: Callable[[], bool],
        why: str | Callable[[], str] = "",
        seconds: float = WAIT_S,
    ) -> None:
        """Return when ``holds()``."""
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                told = why if isinstance(why, str) else why()
                raise AssertionError(f"not within {seconds} s: {told}\n{self.text('body')[:2000]}")
            time.sleep(0.05)

    def wait_for(self, text: str, selector: str = "main") -> None:
        """Return when an element shows ``text``."""
        self.wait(lambda: text in self.text(selector), f"no {text!r} in {selector}")

    # ---- what it does ----

    def violations(self) -> list[str]:
        """What the page's policy forbade, and errors of its scripts, since it was opened."""
        return [str(each) for each in self.script("return window.violations")]

    def requests(self) -> set[str]:
        """The origins that were asked since the last call, by whatever the page has."""
        origins: set[str] = set()
        entries: list[dict[str, Any]] = self.driver.get_log("performance")  # type: ignore[no-untyped-call]
        for entry in entries:
            message = entry["message"]
            if '"Network.requestWillBeSent"' in message:
                address = json.loads(message)["message"]["params"]["request"]["url"]
                parts = urlsplit(address)
                origins.add(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}")
        return origins

    def resize(self, width: int, height: int) -> None:
        """As a window of this size."""
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    def darken(self, dark: bool) -> None:
        """As for a user who prefers dark pages, or light ones."""
        value = "dark" if dark else "light"
        features = [{"name": "prefers-color-scheme", "value": value}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def heap_bytes(self) -> int:
        """Of the page's objects, after its garbage is collected."""
        self.driver.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
        return int(self.driver.execute_cdp_cmd("Runtime.getHeapUsage", {})["usedSize"])

    def picture(self, path: Path) -> None:
        """What the window shows, as PNG."""
        self.driver.save_screenshot(str(path))

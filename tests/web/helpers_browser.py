"""A real Chromium, and a server for it."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from extremal.web import listening_server
from extremal.web.answer_pool import AnswerPool

# A small laptop's window and a phone's, in pixels.
LAPTOP, PHONE = (1280, 800), (390, 844)

ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--enable-unsafe-swiftshader",  # WebGL without a graphics card
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
MISSING = (
    "Debian's chromium and chromium-driver are not here (tools/install_chromium.sh installs them)"
)


def found() -> tuple[str, str] | None:
    """The browser and its driver, or None."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


def may_skip() -> bool:
    """Whether tests do without: there is none, and EXTREMAL_BROWSER does not say "required"."""
    return found() is None and os.environ.get("EXTREMAL_BROWSER") != "required"


@contextmanager
def served(out: Path, pool: AnswerPool | None = None) -> Iterator[str]:
    """The explorer on a free port of loopback: its address."""
    server = listening_server("127.0.0.1", 0, out, pool)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def resize(driver: webdriver.Chrome, width: int, height: int) -> None:
    """Give the page exactly so many pixels; a narrow one is a phone's, which is touched."""
    phone = width < 600
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": phone})


@contextmanager
def opened(*, dark: bool = False) -> Iterator[webdriver.Chrome]:
    """A browser with a profile of its own, in the window of a laptop."""
    here = found()
    assert here is not None, MISSING
    options = webdriver.ChromeOptions()
    options.binary_location = here[0]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for argument in (*ARGUMENTS, f"--user-data-dir={profile}", "--window-size=1280,900"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(here[1]))
        try:
            resize(driver, *LAPTOP)
            if dark:
                feature = {"name": "prefers-color-scheme", "value": "dark"}
                driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
            yield driver
        finally:
            driver.quit()


def requested(driver: webdriver.Chrome) -> list[str]:
    """Every address that pages have asked for since the last call."""
    entries = (json.loads(entry["message"])["message"] for entry in driver.get_log("performance"))
    return [
        entry["params"]["request"]["url"]
        for entry in entries
        if entry["method"] == "Network.requestWillBeSent"
    ]

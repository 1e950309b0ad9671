"""Screenshots of every page of the explorer, into docs/explorer/.

python tools/take_screenshots.py
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from PIL import Image
from selenium.webdriver.support.ui import WebDriverWait

from tests.web.helpers_browser import PHONE, opened, resize, served

FOLDER = Path(__file__).parents[1] / "docs" / "explorer"
WAIT = 300
# All that is shown is of the settings that are chosen.
FRESH = """
const marks = document.querySelector("[data-computing]").dataset;
return marks.old === "" && marks.computing === "";
"""
# The page, whether it is dark, its size, and a script that is true once it is there.
SHOTS = {
    "playground": ("/", False, (1280, 1740), FRESH),
    "compare": ("/?p=1&second_p=3", True, (1280, 2220), FRESH),
    "phone": ("/?p=3", False, PHONE, FRESH),
    "images": ("/images?index=0&radius=1.5", False, (1280, 1000), FRESH),
    "runs": (
        "/runs",
        False,
        (1280, 900),
        "return document.querySelectorAll('#rows tr').length > 5",
    ),
    "run": (
        "/runs?name=min-vidal-2024/figure-2&scale=paper",
        True,
        (1280, 1100),
        "return document.querySelector('#run-report') !== null",
    ),
}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    names = sys.argv[1:] or list(SHOTS)
    with served(Path("runs")) as address:
        for name in names:
            path, dark, size, there = SHOTS[name]
            with opened(dark=dark) as browser:
                resize(browser, *size)
                browser.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
                browser.get(address + path)
                wait = WebDriverWait(browser, WAIT, ignored_exceptions=[Exception])
                wait.until(lambda driver, there=there: driver.execute_script(there))
                browser.execute_async_script("setTimeout(arguments[0], 2500)")
                keep(browser.get_screenshot_as_png(), FOLDER / f"{name}.png")


def keep(png: bytes, path: Path) -> None:
    """A picture at two thirds of the size where it is large, which is small and can be read."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    if picture.width > PHONE[0]:
        size = (picture.width * 2 // 3, picture.height * 2 // 3)
        picture = picture.resize(size, Image.Resampling.LANCZOS)
    picture.save(path, optimize=True)


if __name__ == "__main__":
    main()

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

from tests.web.helpers_browser import opened, served

FOLDER = Path(__file__).parents[1] / "docs" / "explorer"
WAIT = 300
DRAWN = "return document.querySelector('#plane-0 .js-plotly-plot')?.data.length > 2"
# The page, whether it is dark, its size, and a script that is true once it is there.
SHOTS = {
    "playground": ("/", False, (1440, 1560), DRAWN),
    "compare": ("/?p=1&second_p=3", True, (1440, 1500), DRAWN),
    "images": (
        "/images?index=0&radius=1.5",
        False,
        (1440, 1060),
        "return document.querySelectorAll('.network').length > 4",
    ),
    "runs": (
        "/runs",
        False,
        (1440, 900),
        "return document.querySelectorAll('#rows tr').length > 5",
    ),
    "run": (
        "/runs?name=min-vidal-2024/figure-2&scale=paper",
        True,
        (1440, 1100),
        "return document.querySelector('#run-report') !== null",
    ),
}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    names = sys.argv[1:] or list(SHOTS)
    with served(Path("runs")) as address:
        for name in names:
            path, dark, (width, height), there = SHOTS[name]
            with opened(width=width, height=height, dark=dark) as browser:
                browser.get(address + path)
                wait = WebDriverWait(browser, WAIT)
                wait.until(lambda driver, there=there: driver.execute_script(there))
                browser.implicitly_wait(1)
                browser.execute_async_script("setTimeout(arguments[0], 2500)")
                keep(browser.get_screenshot_as_png(), FOLDER / f"{name}.png")


def keep(png: bytes, path: Path) -> None:
    """A picture at two thirds of the size, which is small and can be read."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    small = picture.resize(
        (picture.width * 2 // 3, picture.height * 2 // 3), Image.Resampling.LANCZOS
    )
    small.save(path, optimize=True)


if __name__ == "__main__":
    main()

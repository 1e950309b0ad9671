"""A real Chromium uses the explorer as a person does."""

from __future__ import annotations

import contextlib
import io
import re

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from tests.web import helpers_browser

pytestmark = pytest.mark.skipif(helpers_browser.may_skip(), reason=helpers_browser.MISSING)
WAIT = 120  # seconds at most, on a busy machine
HALF = """
const curve = document.querySelector("#curve .js-plotly-plot").data[0];
return curve.x[curve.y.findIndex((share) => share <= 0.5)];
"""
TIPS = "return document.querySelector('#space-0 .js-plotly-plot').data[1].x.slice(0, 40)"
CAMERA = "return document.querySelector('#space-0 .js-plotly-plot').layout.scene.camera.eye"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with helpers_browser.served(tmp_path_factory.mktemp("runs")) as found:
        yield found


@pytest.fixture(scope="module")
def browser():
    with helpers_browser.opened() as driver:
        yield driver


@pytest.fixture
def page(browser):
    """The browser; at the end it has complained of nothing and asked nobody else."""
    browser.get_log("browser")
    helpers_browser.requested(browser)
    yield browser
    severe = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert severe == []
    # chrome: is the browser's own first page, data: and blob: are within the page.
    near = ("http://127.0.0.1:", "data:", "blob:", "chrome:", "chrome-untrusted:")
    far = [url for url in helpers_browser.requested(browser) if not url.startswith(near)]
    assert far == []


def text(driver, ident: str) -> str:
    return driver.find_element(By.ID, ident).text


def until(driver, condition):
    waiting = WebDriverWait(driver, WAIT, poll_frequency=0.05, ignored_exceptions=[Exception])
    return waiting.until(lambda _: condition())


def ready(driver, words: str) -> None:
    """Wait for a headline with these words, and for the radii, which come after it."""
    until(driver, lambda: words in text(driver, "headline"))
    until(driver, lambda: driver.execute_script(TIPS))
    power = words.partition(":")[0]
    until(driver, lambda: f"{power}:" in text(driver, "broken") and driver.execute_script(HALF))


def test_turn_p_from_1_to_3_scrub_and_click(page, address):
    page.get(address)
    ready(page, "p = 1: of 33 neurons that matter, 33 follow a class average")
    assert "average of class +" in text(page, "followed")
    assert page.execute_script(HALF) == pytest.approx(0.5, abs=0.03)
    as_it_was = page.execute_script(CAMERA)
    scene = page.find_element(By.CSS_SELECTOR, "#space-0 canvas")
    ActionChains(page).drag_and_drop_by_offset(scene, 60, 10).perform()
    until(page, lambda: page.execute_script(CAMERA) != as_it_was)
    turned = page.execute_script(CAMERA)

    p = page.find_element(By.ID, "c-p")
    p.send_keys(Keys.ARROW_RIGHT * 20)  # by 0.1 each, as with the keyboard
    ready(page, "p = 3: of 34 neurons that matter, 34 follow a subclass centre")
    assert "centre 1 (class +)" in text(page, "followed")
    assert "average" not in text(page, "followed")
    until(page, lambda: page.execute_script(HALF) > 0.65)
    assert page.execute_script(HALF) == pytest.approx(0.5**0.5, abs=0.05)
    until(page, lambda: page.execute_script(CAMERA) == pytest.approx(turned))
    assert page.current_url.endswith("/?p=3")

    at_the_end, clock = page.execute_script(TIPS), text(page, "clock")
    assert "fitting" in clock
    moment = page.find_element(By.ID, "moment")
    moment.send_keys(Keys.HOME)
    until(page, lambda: text(page, "clock").startswith("t = 0.2:"))
    assert text(page, "clock").endswith("alignment")
    assert page.execute_script(TIPS) != at_the_end
    moment.send_keys(Keys.END + Keys.ARROW_LEFT * 12)  # A few frames: the whole film takes seconds.
    until(page, lambda: text(page, "clock") != clock and "0.2:" not in text(page, "clock"))
    page.find_element(By.ID, "play").click()
    until(page, lambda: text(page, "play") == "Play" and text(page, "clock") == clock)
    assert page.execute_script(TIPS) == pytest.approx(at_the_end, abs=2e-3)

    plane = page.find_element(By.CSS_SELECTOR, "#plane-0 .nsewdrag")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", plane)
    before = text(page, "told-plane")
    side = plane.size["width"]
    ActionChains(page).move_to_element_with_offset(plane, -side // 5, -side // 4).click().perform()
    until(page, lambda: text(page, "told-plane") not in ("", before))
    told = re.search(r"length (\d\.\d+).*shorter than (\d\.\d+)", text(page, "told-plane"))
    assert told, text(page, "told-plane")
    assert 0.0 < float(told[2]) <= float(told[1])
    assert "across=" in page.current_url


def controls_have_labels(page) -> None:
    unlabelled = """
      return Array.from(document.querySelectorAll("input")).filter((field) =>
        !field.labels.length && !field.getAttribute("aria-label")).map((field) => field.id);
    """
    assert page.execute_script(unlabelled) == []
    nameless = """
      return Array.from(document.querySelectorAll("button")).filter((one) =>
        !one.textContent.trim() && !one.getAttribute("aria-label")).length;
    """
    assert page.execute_script(nameless) == 0
    assert page.title == "Playground · extremal explorer"
    here = page.find_element(By.CSS_SELECTOR, "nav a[aria-current='page']")
    assert here.text == "Playground"
    named = page.find_elements(By.CSS_SELECTOR, ".graph[role='img'][aria-label]")
    assert len(named) == len(page.find_elements(By.CSS_SELECTOR, ".graph")) == 6


def theme_can_be_switched(page) -> None:
    shade = "return getComputedStyle(document.body).backgroundColor"
    first = page.execute_script(shade)
    moment = page.find_element(By.ID, "moment")
    moment.send_keys(Keys.HOME)
    until(page, lambda: text(page, "clock").startswith("t = 0.2:"))
    assert moment.get_attribute("aria-valuetext") == text(page, "clock")
    at_first = page.execute_script(TIPS)
    page.find_element(By.ID, "switch").click()
    until(page, lambda: page.execute_script(shade) != first)
    ink = "return document.querySelector('#curve .js-plotly-plot').layout.font.color"
    until(page, lambda: page.execute_script(ink) == "#e8eaed")
    scene = ink.replace("#curve", "#space-0")
    until(page, lambda: page.execute_script(scene) == "#e8eaed")
    assert text(page, "clock").startswith("t = 0.2:")  # where it was
    until(page, lambda: page.execute_script(TIPS) == pytest.approx(at_first, abs=2e-3))
    page.find_element(By.ID, "switch").click()
    until(page, lambda: page.execute_script(shade) == first)


def test_labels_theme_and_one_click_that_compares_and_copies_lines_that_compute_the_same(
    page, address
):
    allowed = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"], "origin": address}
    page.get(address)
    page.execute_cdp_cmd("Browser.grantPermissions", allowed)
    ready(page, "p = 1")
    controls_have_labels(page)
    theme_can_be_switched(page)
    page.find_element(By.ID, "compare").click()
    ready(page, "p = 3")
    until(page, lambda: text(page, "broken").count("half of the test points break") == 2)
    headlines = text(page, "broken")
    assert "two" in page.find_element(By.ID, "stage").get_attribute("class")
    page.find_element(By.ID, "copy").click()
    until(page, lambda: text(page, "copied") == "Python copied.")
    lines = page.execute_async_script("navigator.clipboard.readText().then(arguments[0])")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(lines, {})  # it is what users do with it
    computed = [float(value) for value in re.findall(r"break by ([\d.]+)", out.getvalue())]
    told = [float(value) for value in re.findall(r"by radius ([\d.]+)", headlines)]
    assert computed == pytest.approx(told, abs=6e-4)  # the page shows three digits
    assert len(told) == 2


def test_a_shared_link_says_the_same_and_a_bad_one_says_why(page, address):
    page.get(f"{address}/?positive=2&negative=1&p=2.5&width=20&seed=7&first=1&second=3")
    ready(page, "p = 2.5")
    for name, value in (("p", "2.5"), ("negative", "1"), ("width", "20"), ("seed", "7")):
        assert page.find_element(By.ID, f"c-{name}").get_attribute("value") == value
    assert "Three dimensions" in text(page, "view")
    page.get(f"{address}/?p=17")
    until(page, lambda: "p must be a finite number" in text(page, "wrong-link"))
    page.get(f"{address}/nowhere")
    until(page, lambda: "There is no page /nowhere" in text(page, "page"))


def typed(driver, ident: str, words: str) -> None:
    """Put words into a field, in place of those that are there."""
    driver.find_element(By.ID, ident).send_keys(Keys.CONTROL + "a" + Keys.NULL + words)


def a_number_beyond_its_bounds_is_said_and_stays_out_of_the_link(page) -> None:
    link = page.current_url
    for words in ("99999", "1.5"):
        typed(page, "c-seed", words)
        rule = f"seed must be a whole number from 0 to 9999, got {words}"
        until(page, lambda rule=rule: text(page, "message") == rule)
        assert page.current_url == link
    until(page, lambda: "seed must" in text(page, "message-plane"))
    assert text(page, "told-plane") == ""
    drawn = "return document.querySelector('#plane-0 .js-plotly-plot').data"
    assert page.execute_script(drawn) == []
    typed(page, "c-seed", "8")
    until(page, lambda: text(page, "message") == text(page, "message-plane") == "")
    until(page, lambda: "seed=8" in page.current_url)


def test_centres_of_the_plane_are_those_that_there_are_and_numbers_have_bounds(page, address):
    def centres():
        fields = [page.find_element(By.ID, f"c-{name}") for name in ("first", "second")]
        return [tuple(map(field.get_attribute, ("value", "max"))) for field in fields]

    page.get(f"{address}/?width=8")
    ready(page, "p = 1")
    assert centres() == [("1", "4"), ("3", "4")]
    page.find_element(By.ID, "c-positive").send_keys(Keys.ARROW_RIGHT)  # 3 + 2: the usual one moves
    until(page, lambda: centres() == [("1", "5"), ("4", "5")])
    until(page, lambda: page.current_url.endswith("/?positive=3&width=8"))
    typed(page, "c-second", "5")
    until(page, lambda: "second=5" in page.current_url)
    page.find_element(By.ID, "c-negative").send_keys(Keys.HOME)  # 3 + 1: there is no fifth
    until(page, lambda: centres() == [("1", "4"), ("4", "4")])
    until(page, lambda: "along μ₄" in text(page, "plane-0"))
    assert text(page, "message-plane") == ""
    a_number_beyond_its_bounds_is_said_and_stays_out_of_the_link(page)


def test_an_image_that_is_not_there_is_said(page, address):
    page.get(f"{address}/images")
    until(page, lambda: page.find_element(By.ID, "i-index"))
    typed(page, "i-index", "777")
    rule = "index must be a whole number from 0 to 299, got 777"
    until(page, lambda: text(page, "message-images") == rule)
    assert "777" not in page.current_url
    assert "NaN" not in page.current_url
    typed(page, "i-index", "12")
    until(page, lambda: "index=12" in page.current_url)
    until(page, lambda: rule not in text(page, "message-images"))


def test_open_a_run(page, address):
    page.get(f"{address}/runs")
    until(page, lambda: "runs" in text(page, "counted"))
    page.find_element(By.ID, "filter").send_keys("figure-2 paper vidal-2024")
    until(page, lambda: text(page, "counted").startswith("1 of"))
    page.find_element(By.LINK_TEXT, "min-vidal-2024/figure-2").click()
    until(page, lambda: page.find_elements(By.ID, "run-report") != [])
    files = page.find_elements(By.CSS_SELECTOR, "a[download]")
    assert "Claims, CSV" in [one.text for one in files]
    page.switch_to.frame("run-report")
    try:
        told = "return document.querySelector('main')?.innerText ?? ''"
        until(page, lambda: "rows agree" in page.execute_script(told))
        drawn = "return document.querySelectorAll('.js-plotly-plot .main-svg').length"
        until(page, lambda: page.execute_script(drawn) >= 6)
        assert "1/sqrt(K), Theorem 1" in page.execute_script(told)
    finally:
        page.switch_to.default_content()

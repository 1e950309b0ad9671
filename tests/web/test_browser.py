"""A real Chromium uses the explorer as a person does, in a laptop's window and in a phone's."""

from __future__ import annotations

import contextlib
import io
import re
import threading

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from extremal.web.answer_pool import AnswerPool, Superseded
from extremal.web.theme import DAY, NIGHT, looks
from tests.web import helpers_browser
from tests.web.helpers_browser import LAPTOP, PHONE, resize

pytestmark = pytest.mark.skipif(helpers_browser.may_skip(), reason=helpers_browser.MISSING)
WAIT = 120  # seconds at most, on a busy machine
HALF = """
const curve = document.querySelector("#curve .js-plotly-plot").data[0];
return curve.x[curve.y.findIndex((share) => share <= 0.5)];
"""
TIPS = "return document.querySelector('#space-0 .js-plotly-plot').data[1].x.slice(0, 40)"
CAMERA = "return document.querySelector('#space-0 .js-plotly-plot').layout.scene.camera.eye"
MARKS = "return {...document.querySelector('[data-computing]').dataset}"
# What is wider than the window, but for what lies in a box of its own that scrolls.
TOO_WIDE = """
const wide = document.documentElement.clientWidth;
const scrolls = (one) => one && one !== document.body &&
  (getComputedStyle(one).overflowX !== "visible" || scrolls(one.parentElement));
return Array.from(document.body.querySelectorAll("*")).filter((one) =>
  one.getBoundingClientRect().right > wide + 1 && !scrolls(one.parentElement)
).map((one) => one.outerHTML.slice(0, 100)).concat(
  document.documentElement.scrollWidth > wide ? ["the page"] : []);
"""
# Which of some elements are wholly within the window.
WITHIN = """
return arguments[0].map((place) => {
  const box = document.querySelector(place).getBoundingClientRect();
  return box.height > 0 && box.top > -1 && box.left > -1 &&
    box.bottom < window.innerHeight + 1 && box.right < window.innerWidth + 1;
});
"""
TIP = "const tip = document.querySelector('#tip'); return tip.hidden ? '' : tip.textContent"


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
    resize(browser, *LAPTOP)
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


def nothing_is_too_wide(driver) -> None:
    """A figure is drawn 700 pixels wide at first, and fits its panel a moment later."""
    until(driver, lambda: driver.execute_script(TOO_WIDE) == [])


def fresh(driver) -> bool:
    """Whether all that is shown is of the settings that are chosen."""
    marks = driver.execute_script(MARKS)
    return marks["old"] == marks["computing"] == "" and text(driver, "busy-playground") == ""


def ready(driver, words: str) -> None:
    """Wait for a headline with these words, and for all else."""
    headlines = ("headline-0", "headline-1")
    until(driver, lambda: any(words in text(driver, one) for one in headlines) and fresh(driver))
    until(driver, lambda: driver.execute_script(TIPS))


def a_word_is_explained_by_pointer_and_keyboard(page) -> None:
    word = page.find_element(By.CSS_SELECTOR, "#intro .term")
    meaning = word.get_attribute("data-explained")
    ActionChains(page).move_to_element(word).perform()
    until(page, lambda: page.execute_script(TIP) == meaning)
    assert page.execute_script(WITHIN, ["#tip"]) == [True]
    ActionChains(page).move_to_element(page.find_element(By.ID, "play")).perform()
    until(page, lambda: page.execute_script(TIP) == "")
    page.execute_script("document.querySelector('#intro summary').focus()")
    ActionChains(page).send_keys(Keys.TAB).perform()
    until(page, lambda: page.execute_script(TIP) == meaning)
    assert word.get_attribute("aria-describedby") == "tip"
    ActionChains(page).send_keys(Keys.ESCAPE).perform()
    until(page, lambda: page.execute_script(TIP) == "")


def test_turn_p_from_1_to_3_scrub_and_click(page, address):
    page.get(address)
    ready(page, "p = 1: of 32 neurons that matter, 32 follow a class average")
    steps = [one.text for one in page.find_elements(By.CSS_SELECTOR, "#intro li")]
    names = ["What you see", "What to turn", "What to look for"]
    assert [one.partition(":")[0] for one in steps] == names
    above = ["#intro", "#c-p", "#play", "#moment", "#headline-0", "#space-0", "#broken"]
    assert page.execute_script(WITHIN, above) == [True] * len(above)
    nothing_is_too_wide(page)
    a_word_is_explained_by_pointer_and_keyboard(page)
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
    until(page, lambda: text(page, "clock").startswith("t = 0.2 ·"))
    assert text(page, "clock").endswith("alignment")
    assert page.execute_script(TIPS) != at_the_end
    moment.send_keys(Keys.END + Keys.ARROW_LEFT * 12)  # A few frames: the whole film takes seconds.
    until(page, lambda: text(page, "clock") != clock and "0.2 ·" not in text(page, "clock"))
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


class HeldPool(AnswerPool):
    """One thread, which computes nothing new while `gate` is closed."""

    def __init__(self) -> None:
        super().__init__(workers=1)
        self.gate, self.given_up = threading.Event(), 0
        self.gate.set()

    def ask(self, key, work, **more):
        def held(deadline):
            assert self.gate.wait(WAIT)
            return work(deadline)

        try:
            return super().ask(key, held, **more)
        except Superseded:
            self.given_up += 1
            raise


INK = "return document.querySelector('#space-0 .js-plotly-plot').layout.font.color"
FADED = """
return Array.from(document.querySelectorAll(".graph, #headline-0, #broken, #told-plane, .tables"))
  .filter((one) => one.offsetParent).map((one) => Number(getComputedStyle(one).opacity));
"""


def everything_is_old_and_says_of_what(page, words: str) -> None:
    until(page, lambda: page.execute_script(MARKS)["old"] == "flow radii plane")
    until(page, lambda: set(page.execute_script(FADED)) == {0.35})
    lines = [one.text for one in page.find_elements(By.CSS_SELECTOR, ".old, .settings")]
    shown = [line for line in lines if line]
    assert len(shown) == 7
    assert all(line.startswith("Old:") and words in line for line in shown), shown
    assert text(page, "busy-playground") == "training …"


@pytest.fixture
def held():
    pool = HeldPool()
    yield pool
    pool.gate.set()
    pool.close()


def test_under_load_old_panels_are_old_until_theirs_arrive_and_dark_is_dark_at_once(
    page, held, tmp_path
):
    with helpers_browser.served(tmp_path, held) as slow:
        page.get(f"{slow}/?width=4")
        ready(page, "p = 1:")
        assert text(page, "settings").startswith("p = 1 · 2 + 2 subclasses")
        assert set(page.execute_script(FADED)) == {1.0}
        held.gate.clear()
        p = page.find_element(By.ID, "c-p")
        for value in ("1.1", "1.2", "1.3"):  # the first is begun, the third gives the second up
            p.send_keys(Keys.ARROW_RIGHT)
            until(page, lambda value=value: page.current_url.endswith(f"?p={value}&width=4"))
        until(page, lambda: held.given_up)
        everything_is_old_and_says_of_what(page, "p = 1 · 2 + 2 subclasses")
        assert page.execute_script(INK) == DAY.ink
        page.find_element(By.ID, "switch").click()
        until(page, lambda: page.execute_script(INK) == NIGHT.ink)
        grid = INK.replace("#space-0", "#curve").replace("font.color", "xaxis.gridcolor")
        until(page, lambda: page.execute_script(grid) == NIGHT.grid)
        everything_is_old_and_says_of_what(page, "p = 1 · 2 + 2 subclasses")
        held.gate.set()
        ready(page, "p = 1.3:")
        until(page, lambda: set(page.execute_script(FADED)) == {1.0})
        assert text(page, "settings").startswith("p = 1.3 · 2 + 2 subclasses")
        assert page.execute_script(INK) == NIGHT.ink
        page.find_element(By.ID, "switch").click()
    p.send_keys(Keys.ARROW_RIGHT)  # nobody is there any more
    until(page, lambda: "The explorer gives no answer" in text(page, "lost"))
    until(page, lambda: page.execute_script(MARKS) == {"old": "flow radii plane", "computing": ""})
    assert text(page, "busy-playground") == ""
    page.get_log("browser")  # which complains of it, too


def test_p_and_what_it_does_are_on_one_screen_of_a_phone_and_nothing_is_wider(page, address):
    resize(page, *PHONE)
    page.get(f"{address}/?width=8")
    ready(page, "p = 1")
    first = ["#intro", "#c-p", "#compare", "#headline-0", "#space-0"]
    assert page.execute_script(WITHIN, first) == [True] * len(first)
    page.find_element(By.ID, "compare").click()
    until(page, lambda: page.find_element(By.ID, "plane-1").is_displayed() and fresh(page))
    page.execute_script("document.querySelector('#curve').scrollIntoView({block: 'end'})")
    below = ["#c-p", "#c-second_p", "#curve"]
    assert page.execute_script(WITHIN, below) == [True] * len(below)
    nothing_is_too_wide(page)
    a_tap_explains(page, "#more .what", opened="#more > summary")


def a_tap_explains(page, place: str, opened: str) -> None:
    tap(page, opened)
    tap(page, place)
    meaning = page.find_element(By.CSS_SELECTOR, place).get_attribute("data-explained")
    until(page, lambda: page.execute_script(TIP) == meaning)
    assert page.execute_script(WITHIN, ["#tip"]) == [True]
    tap(page, "#c-p-shown")
    until(page, lambda: page.execute_script(TIP) == "")


def tap(page, place: str) -> None:
    at = "const box = arguments[0].getBoundingClientRect(); return [box.x + 9, box.y + 9]"
    element = page.find_element(By.CSS_SELECTOR, place)
    until(page, element.is_displayed)
    x, y = page.execute_script(at, element)
    page.execute_cdp_cmd(
        "Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]}
    )
    page.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


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
    until(page, lambda: text(page, "clock").startswith("t = 0.2 ·"))
    assert moment.get_attribute("aria-valuetext") == text(page, "clock")
    at_first = page.execute_script(TIPS)
    page.find_element(By.ID, "switch").click()
    until(page, lambda: page.execute_script(shade) != first)
    until(page, lambda: page.execute_script(INK) == NIGHT.ink)
    assert text(page, "clock").startswith("t = 0.2 ·")  # where it was
    until(page, lambda: page.execute_script(TIPS) == pytest.approx(at_first, abs=2e-3))
    page.find_element(By.ID, "switch").click()
    until(page, lambda: page.execute_script(shade) == first)
    figure = {"data": [], "layout": {"font": {"size": 13, "color": DAY.ink}, "margin": {"l": 40}}}
    paint = "return dash_clientside.answers.paint(arguments[0], arguments[1], arguments[2])"
    twice = page.execute_script(paint, figure, {"name": "dark", "text": 26}, looks())
    layout = {"font": {"size": 26, "color": NIGHT.ink}, "margin": {"l": 80}}
    assert twice == {"data": [], "layout": layout}


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
    page.get(f"{address}/?p=3&p=1")
    until(page, lambda: "link must name p once, got 3 and 1" in text(page, "wrong-link"))
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
        until(page, lambda rule=rule: text(page, "message-flow") == rule)
        assert page.current_url == link
    until(page, lambda: "seed must" in text(page, "message-plane"))
    old = {"old": "flow radii plane", "computing": ""}  # what is shown is of the seed before
    until(page, lambda: page.execute_script(MARKS) == old)
    assert "seed 0" in text(page, "of-curve")
    typed(page, "c-seed", "8")
    until(page, lambda: fresh(page) and "seed 8" in text(page, "settings"))
    assert text(page, "message-flow") == text(page, "message-plane") == ""
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
    resize(page, *PHONE)
    page.get(f"{address}/images")
    until(page, lambda: page.find_element(By.ID, "i-index"))
    typed(page, "i-index", "777")
    rule = "index must be a whole number from 0 to 299, got 777"
    until(page, lambda: text(page, "message-image") == rule)
    assert "777" not in page.current_url
    assert "NaN" not in page.current_url
    typed(page, "i-index", "12")
    until(page, lambda: "index=12" in page.current_url)
    until(page, lambda: rule not in text(page, "message-image") and text(page, "busy-images") == "")
    nothing_is_too_wide(page)


def test_open_a_run(page, address):
    page.get(f"{address}/runs")
    until(page, lambda: "runs" in text(page, "counted"))
    resize(page, *PHONE)
    nothing_is_too_wide(page)
    page.find_element(By.ID, "filter").send_keys("figure-2 paper vidal-2024")
    until(page, lambda: text(page, "counted").startswith("1 of"))
    page.find_element(By.LINK_TEXT, "min-vidal-2024/figure-2").click()
    until(page, lambda: page.find_elements(By.ID, "run-report") != [])
    nothing_is_too_wide(page)
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

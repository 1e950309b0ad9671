"""Whatever a browser sends, a callback answers with a sentence or with a drawing."""

from __future__ import annotations

import base64
import csv
import io
import json
import logging
import os
import threading
import time
from pathlib import Path
from urllib.parse import urlencode

import pytest
import torch
from dash import no_update
from dash.exceptions import PreventUpdate
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plotly.utils import PlotlyJSONEncoder

from extremal import experiments
from extremal.data import Dataset
from extremal.models import Gaussian, PReLUNet
from extremal.web import create_app, image_attacks, stored_runs
from extremal.web.answer_pool import Busy, Deadline, Superseded
from extremal.web.app import _not_found, _Pages
from extremal.web.callback_errors import INTERNAL_ERROR_SENTENCE, errors_as_text
from extremal.web.image_attacks import (
    ImageQuestion,
    UploadedNetworks,
    network_answer,
    read_question,
    read_question_link,
)
from extremal.web.pages import images_page, playground_answers, playground_page, runs_page
from extremal.web.pages.playground_answers import broken
from extremal.web.playground_charts import draw_curve
from extremal.web.playground_plane import decision_regions
from extremal.web.playground_settings import (
    PlanePoint,
    PlaygroundSettings,
    described,
    read_settings,
)
from extremal.web.stored_runs import FILE_KINDS, changed, detail, drawn_file, listing, made_file

OURS = INTERNAL_ERROR_SENTENCE.partition("{")[0]
PLAIN = st.none() | st.booleans() | st.integers() | st.text(max_size=30)
PLAIN |= st.floats(allow_subnormal=False)
ANYTHING = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3), max_leaves=5)


def mappings(*names: str) -> st.SearchStrategy:
    """Mappings with some of the right names, and anything else."""
    good = st.sampled_from([1, 2, 3, 0.1, "3", "exp", "l2", "mnist", "paper", "demo", "dark", None])
    return st.dictionaries(st.sampled_from(names), good | ANYTHING) | ANYTHING


SETUPS = mappings(
    "p", "second_p", "positive", "negative", "spread", "init", "width", "seed", "loss"
)
SHOT = {
    "data": st.sampled_from(image_attacks.IMAGE_DATA_SETS),
    "index": st.integers(0, image_attacks.CHOOSABLE_IMAGES - 1),
    "norm": st.sampled_from(["l1", "l2", "linf"]),
    "radius": st.sampled_from([0, 0.01, 0.5]),
}
RUN = mappings("name", "scale") | st.fixed_dictionaries(
    {"name": st.sampled_from(["demo", "min-vidal-2024/figure-2"]) | ANYTHING},
    optional={"scale": st.sampled_from(["quick", "paper"]) | ANYTHING},
)
PROBES = mappings("first", "second", "across", "up")
quick = settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


class Fixed:
    """A pool that answers every question of the playground with the same network."""

    def __init__(self, answer) -> None:
        self.answer = answer

    def ask(self, key, work, **_):
        return self.answer if isinstance(key, PlaygroundSettings) else work(Deadline(300.0))


class Refusing:
    """A pool that refuses: nothing may be computed for bad input, and busy is a sentence."""

    def ask(self, *_, **__):
        raise Busy("busy")


class Passing:
    """A pool that computes at once, but for what is slow: images and networks are small."""

    def __init__(self) -> None:
        self.kept, self.count = {}, 0
        x = torch.rand(
            image_attacks.CHOOSABLE_IMAGES, 784, generator=torch.Generator().manual_seed(1)
        )
        self.images = Dataset(x, network()(x).argmax(1).detach(), box=(0.0, 1.0))

    def ask(self, key, work, **_):
        self.count += 1
        if key[0] in ("images", "network"):
            return self.images if key[0] == "images" else network()
        if key[0] == "file" and key[3] in ("png", "pdf"):
            return b"drawn"
        if key not in self.kept:
            self.kept[key] = work(Deadline(300.0))
        return self.kept[key]


def answered(callback, *values):
    """What a guarded callback returns: its message where it failed, else ''."""
    found = errors_as_text(lambda words: {"words": words})(callback)(*values)
    words = found.get("words", "") if isinstance(found, dict) else ""
    assert OURS not in words, words
    return words


@pytest.fixture(scope="module")
def fixed(answers):
    return Fixed(answers[1.0].trained)


@given(SETUPS, ANYTHING)
@quick
def test_the_playground(fixed, values, asker):
    answered(playground_answers.Playground(fixed).show, values, asker)


@given(SETUPS, ANYTHING)
@settings(quick, max_examples=25)
def test_the_test_points(fixed, values, asker):
    answered(playground_answers.Playground(fixed).attack_and_certify, values, asker)


@given(SETUPS, PROBES, ANYTHING)
@settings(quick, max_examples=40)
def test_the_plane(fixed, values, point, asker):
    answered(playground_answers.Playground(fixed).probe, values, point, asker)


@given(mappings("data", "index", "norm", "radius", "own"), ANYTHING)
@quick
def test_the_images(passing, values, asker):
    before = passing.count
    words = answered(images_page.Images(passing).show, values, asker)
    assert words or passing.count > before
    assert answered(images_page.Images(Refusing()).show, values, asker)


@pytest.fixture(scope="module")
def passing():
    return Passing()


@given(st.fixed_dictionaries(SHOT), ANYTHING)
@settings(quick, max_examples=3)
def test_images_that_there_are(passing, values, asker):
    found = images_page.Images(passing).show(values, asker)
    shot = ImageQuestion(**values)
    assert found["of-seen"] == (
        f"image {shot.index} of {shot.data} · {shot.norm} · radius {shot.radius:g}"
    )
    assert "data-explained" in str(found["seen"])


@given(
    ANYTHING | st.binary(max_size=200).map(lambda b: "data:;base64," + base64.b64encode(b).decode())
)
@quick
def test_the_upload(contents):
    words = answered(images_page.Images(Refusing()).upload, contents, "a name")
    assert words.startswith("file must") or contents is None


@given(ANYTHING, mappings("by", "down"), ANYTHING)
@settings(quick, max_examples=25)
def test_the_table_of_runs(tmp_path, listed, words, order, ticks):
    stored = runs_page.RunPages(Fixed(None), tmp_path)
    stored._pool.ask = lambda *_, **__: listed
    assert answered(stored.rows, words, order, ticks) == ""


@given(RUN)
@settings(quick, max_examples=40)
def test_one_run(passing, values):
    stored, refusing = (runs_page.RunPages(pool, Path("nowhere")) for pool in (passing, Refusing()))
    answered(stored.refresh, None, values)
    answered(refusing.refresh, None, values)


LINKS = st.dictionaries(
    st.sampled_from(["name", "scale", "p", "seed", "first", "index", "norm", "who"]),
    st.sampled_from(["demo", "quick", "paper", "3", "0.5", "l1", ""]) | st.text(max_size=9),
    max_size=3,
).map(lambda values: "?" + urlencode(values, errors="replace"))


@given(ANYTHING | st.sampled_from(["/", "/runs", "/images"]), LINKS | ANYTHING)
@settings(quick, max_examples=60)
def test_every_address(pages, path, search):
    for page_of in pages:
        page, _ = page_of(path, search)
        assert OURS not in str(page)


@pytest.fixture(scope="module")
def pages(passing):
    made = (runs_page.RunPages(pool, Path("nowhere")) for pool in (passing, Refusing()))
    return [errors_as_text(_not_found)(_Pages(stored)) for stored in made]


@given(RUN, st.sampled_from([*FILE_KINDS, "exe", ""]) | st.text(max_size=9))
@settings(quick, max_examples=60)
def test_every_file(client, values, kind):
    asked = values if isinstance(values, dict) else {}
    query = urlencode({**asked, "kind": kind}, errors="replace")
    with client.get(f"/download?{query}") as found:
        assert found.status_code in (200, 404)
        assert found.status_code == 200 or found.text.count("\n") == 1
        assert OURS.encode() not in found.data


@pytest.fixture(scope="module")
def client(passing):
    return create_app("nowhere", pool=passing).server.test_client()


QUESTION = {"output": "nobody.children", "outputs": {"id": "nobody", "property": "children"}}


@pytest.mark.parametrize(
    "sent",
    ["{}", "[]", "3", "null", "no JSON", json.dumps({**QUESTION, "inputs": []})],
)
def test_what_is_no_question_is_refused_in_a_line(client, caplog, sent):
    with caplog.at_level(logging.DEBUG):
        found = client.post("/_dash-update-component", data=sent, content_type="application/json")
    assert found.status_code == 400
    assert found.text.count("\n") == 1
    assert "Traceback" not in found.text + caplog.text


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    """The shipped results."""
    return listing(tmp_path_factory.mktemp("empty"))


def test_our_own_mistakes_are_logged_and_not_shown(caplog):
    def broken() -> None:
        raise KeyError("secret")

    with caplog.at_level(logging.ERROR):
        words = errors_as_text(str)(broken)()
    assert words.startswith(OURS)
    assert "KeyError" in words
    assert "secret" not in words
    assert "secret" in caplog.text


def test_an_answer_that_nobody_waits_for_changes_nothing():
    def given_up() -> None:
        raise Superseded

    with pytest.raises(PreventUpdate):
        errors_as_text(str)(given_up)()


def test_a_good_question_is_drawn(fixed, answers):
    playground = playground_answers.Playground(fixed)
    shown = playground.show({"p": 1}, "me")
    assert shown["stage"] == "stage"
    assert "p = 1: of 32 neurons" in str(shown["headline-0"])
    assert "OrthonormalMixture(dim=4" in shown["code"]
    both = playground.show({"p": 1, "second_p": 3}, "me")
    assert both["stage"] == "stage two"
    assert len(both["tracks"]) == 2
    plane = playground.probe({}, {"first": 2, "second": 3}, "me")
    told = decision_regions(answers[1.0].trained, PlanePoint(2, 3), Deadline(300.0))
    assert f"{told.radius:.3f}" in str(plane["told"])
    radii = playground.attack_and_certify({}, "me")
    assert radii["curve"] == draw_curve([answers[1.0]])
    assert broken(answers[1.0]) in str(radii["broken"])


def test_every_panel_is_told_of_which_settings_it_is(fixed):
    playground, setup = playground_answers.Playground(fixed), {"seed": 7, "second_p": 3}
    words = described(read_settings(setup))
    shown = playground.show(setup, "me")
    assert shown["settings"] == words
    panels = {name: said for name, said in shown.items() if name.startswith("of-")}
    assert panels == {f"of-{name}": words for name in playground_answers.FLOW_PLACES}
    assert playground.attack_and_certify(setup, "me")["of-curve"] == words
    plane = playground.probe(setup, {"up": 0.5}, "me")
    assert (
        plane["of-plane-0"] == plane["of-plane-1"] == f"(1, 0.5) in the plane of μ₁, μ₃ · {words}"
    )


def asked(client, group: str, **values) -> dict:
    """What the server answers for a group of the playground."""
    described = client.get("/_dash-dependencies").get_json()
    one = next(one for one in described if f"answered-{group}.data" in one["output"])
    names = [name.split("@")[0].rsplit(".", 1) for name in one["output"].strip(".").split("...")]
    sent = {
        "output": one["output"],
        "outputs": [{"id": ident, "property": part} for ident, part in names],
        "inputs": [{**wire, "value": values.get(wire["id"])} for wire in one["inputs"]],
        "state": [{**wire, "value": "me"} for wire in one["state"]],
        "changedPropIds": ["setup.data"],
    }
    return client.post("/_dash-update-component", json=sent).get_json()["response"]


@pytest.mark.parametrize("group", ["flow", "radii", "plane"])
def test_an_answer_says_whose_it_is_and_a_failure_leaves_what_is_shown_as_it_was(fixed, group):
    client = create_app("nowhere", pool=fixed).server.test_client()
    probe = {"up": 0.2, "turn": 8}
    turn = 8 if group == "plane" else 7
    found = asked(client, group, setup={"p": 1, "turn": 7}, probe=probe)
    assert found[f"shown-{group}"] == found[f"answered-{group}"] == {"data": turn}
    assert found[f"message-{group}"] == {"children": ""}
    bad = asked(client, group, setup={"p": 99, "turn": 7}, probe=probe)
    assert bad.keys() == {f"answered-{group}", f"message-{group}"}
    assert bad[f"answered-{group}"] == {"data": turn}
    assert bad[f"message-{group}"]["children"].startswith("p must")


def test_every_term_of_the_page_is_explained():
    page = json.dumps(playground_page.page("").to_plotly_json(), cls=PlotlyJSONEncoder)
    parts = json.loads(page)
    found = {}

    def look(part) -> None:
        if isinstance(part, list):
            for one in part:
                look(one)
        elif isinstance(part, dict):
            props = part.get("props", {})
            if "term" in str(props.get("className", "")).split():
                found[props["children"]] = props["data-explained"]
            look(props.get("children"))

    look(parts)
    assert all(len(words) > 30 for words in found.values())
    for name in ("attack", "certificate", "subclasses", "flow time", "certified ball", "?"):
        assert name in found


def test_bad_links_are_explained_in_the_page():
    page = str(playground_page.page("?p=17"))
    assert "This link can't be followed as it is: p must be" in page
    twice = str(images_page.page("?norm=l2&norm=l1"))
    assert "This link can't be followed as it is: link must name norm once, got l2 and l1." in twice
    assert "This link can't be followed as it is: norm must be" in str(images_page.page("?norm=l7"))
    gone = str(runs_page.RunPages(Fixed(None), None).page("?name=nobody/knows&scale=paper"))
    assert "unknown experiment" in gone


# Images


def network(outputs: int = 10, dim: int = 784) -> PReLUNet:
    generator = torch.Generator().manual_seed(3)
    return PReLUNet(dim, 6, 2.0, outputs, init=Gaussian(0.1), generator=generator)


def sent(data: bytes) -> str:
    return "data:application/octet-stream;base64," + base64.b64encode(data).decode()


def test_a_network_of_ones_own(tmp_path):
    network().save(tmp_path / "net.safetensors")
    own = UploadedNetworks()
    key = own.add(sent((tmp_path / "net.safetensors").read_bytes()))
    assert torch.equal(own.get(key).neurons, network().neurons)
    with pytest.raises(ValueError, match="chosen again"):
        own.get("another")


@pytest.mark.parametrize(("outputs", "dim"), [(1, 784), (10, 5)])
def test_a_network_for_something_else_is_refused(tmp_path, outputs, dim):
    network(outputs, dim).save(tmp_path / "net.safetensors")
    with pytest.raises(ValueError, match="784 inputs, 10 outputs"):
        UploadedNetworks().add(sent((tmp_path / "net.safetensors").read_bytes()))


def test_large_files_are_refused(monkeypatch):
    monkeypatch.setattr(image_attacks, "FILE_BYTES", 100)
    with pytest.raises(ValueError, match="at most 0 MB"):
        UploadedNetworks().add(sent(b"0" * 1000))


def test_few_files_are_read_at_a_time(monkeypatch):
    begun, opened = threading.Event(), threading.Event()

    def slow(data: bytes) -> PReLUNet:
        begun.set()
        assert opened.wait(30.0)
        return network()

    monkeypatch.setattr(image_attacks, "_read_network", slow)
    own = UploadedNetworks()
    own._reading = threading.Semaphore(1)
    first = threading.Thread(target=own.add, args=(sent(b"first"),))
    first.start()
    assert begun.wait(30.0)
    with pytest.raises(Busy, match="other people's files; try again"):
        own.add(sent(b"second"))
    opened.set()
    first.join()
    assert own.get(own.add(sent(b"second")))


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_whoever_looks_at_an_image_looks_at_the_clock(norm):
    x = torch.rand(1, 784, generator=torch.Generator().manual_seed(1))
    images = Dataset(x, network()(x).argmax(1).detach(), box=(0.0, 1.0))

    class Counted(Deadline):
        count = 0

        def check(self, *_: object) -> None:
            self.count += 1

    deadline = Counted(1.0)
    network_answer("yours", network(), images, ImageQuestion(norm=norm, radius=0.1), deadline)
    assert deadline.count >= 3  # in the attack, in the smallest one, in the certificate


def test_an_image_is_attacked_within_its_ball_and_box():
    x = torch.rand(4, 784, generator=torch.Generator().manual_seed(1))
    net = network().float()
    y = net(x).argmax(1).detach()
    shot = ImageQuestion(index=2, norm="l2", radius=2.0)
    seen = network_answer("yours", net, Dataset(x, y, box=(0.0, 1.0)), shot, Deadline(300.0))
    assert float((seen.x_adv - x[2]).norm()) <= 2.0 * (1 + 1e-5)
    assert float(seen.x_adv.min()) >= 0.0
    assert float(seen.x_adv.max()) <= 1.0
    assert seen.broken == (seen.margin_adv < 0) == (seen.smallest <= 2.0)
    assert seen.certified <= seen.smallest
    given = (net.votes[seen.said] * net.hidden(x[2:3])[0]).detach()
    assert list(seen.votes) == pytest.approx(sorted(given.tolist(), reverse=True)[:6])


def test_the_usual_radius_depends_on_the_norm():
    assert read_question({"norm": "linf"}).radius == 0.1
    assert read_question_link("?data=fashion-mnist&index=7&norm=l1&radius=3") == ImageQuestion(
        "fashion-mnist", 7, "l1", 3.0
    )
    for bad in ("?index=300", "?radius=-1", "?radius=7", "?norm=l7", "?data=cifar10"):
        with pytest.raises(ValueError, match="must"):
            read_question_link(bad)
    for name in ("data", "index", "norm", "radius"):
        with pytest.raises(ValueError, match=f"{name} must"):
            read_question({name: None})


def test_images_that_are_not_here_are_not_fetched(monkeypatch, tmp_path):
    monkeypatch.setenv("EXTREMAL_CACHE", str(tmp_path))
    monkeypatch.delenv("EXTREMAL_DATA", raising=False)
    with pytest.raises(ValueError, match="extremal data fetch mnist"):
        image_attacks.load_images("mnist")


# Runs


def test_the_shipped_results_are_listed_and_can_be_had(tmp_path, listed):
    rows = {(row.name, row.scale): row for row in listed}
    shipped = rows["min-vidal-2024/figure-2", "paper"]
    assert (shipped.status, shipped.done, shipped.total) == ("shipped", 320, 320)
    summary = detail("min-vidal-2024/figure-2", "paper", tmp_path)
    claims = list(csv.DictReader(io.StringIO(made_file(summary, "csv").decode())))
    assert [row["quantity"] for row in claims] == [row["quantity"] for row in summary["rows"]]
    curves = list(csv.DictReader(io.StringIO(made_file(summary, "figure.csv").decode())))
    line = next(panel for panel in summary["panels"] if panel["kind"] == "line")
    own = [float(row["y"]) for row in curves if row["series"] == line["series"][0]["label"]]
    assert own[: len(line["series"][0]["y"])] == line["series"][0]["y"]
    assert made_file(summary, "pdf").startswith(b"%PDF")


def test_files_are_served_and_what_is_not_there_is_a_sentence(tmp_path):
    client = create_app(tmp_path).server.test_client()
    where = "/download?name=demo&scale=quick&kind="
    for kind, (mime, _) in FILE_KINDS.items():
        with client.get(where + kind) as found:
            assert (found.status_code, found.mimetype) == (200, mime)
            assert f"demo-quick.{kind}" in found.headers["Content-Disposition"]
    bad = ("/download", where + "exe", "/download?name=../../etc/passwd&scale=quick&kind=csv")
    for address in bad:
        found = client.get(address)
        assert found.status_code == 404
        assert OURS not in found.text
        assert "Traceback" not in found.text


def test_a_figure_is_drawn_once_and_not_for_other_sites(tmp_path, monkeypatch, pool):
    drawn = []
    monkeypatch.setattr(stored_runs, "pdf_bytes", lambda summary: drawn.append(1) or b"picture")
    client = create_app(tmp_path, pool=pool).server.test_client()
    where = "/download?name=demo&scale=quick&kind=pdf"
    away = client.get(where, headers={"Sec-Fetch-Site": "cross-site"})
    assert (away.status_code, drawn) == (403, [])
    for site in ("same-origin", "none"):
        assert client.get(where, headers={"Sec-Fetch-Site": site}).data == b"picture"
    assert drawn == [1]


def test_a_figure_that_is_stored_is_not_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(stored_runs, "png_bytes", None)
    client = create_app(tmp_path).server.test_client()
    stored = Path(__file__).parents[2] / "results" / "demo" / "quick.png"
    with client.get("/download?name=demo&scale=quick&kind=png") as found:
        assert found.data == stored.read_bytes()


def test_what_a_run_drew_is_taken_until_a_trial_or_a_start_is_newer(tmp_path):
    experiment = experiments.get("demo")
    folder = tmp_path / "demo" / "quick"
    trial = experiments.Store(tmp_path).path(experiment.trials("quick")[0])
    for path in (folder / "begun.json", trial, folder / "report.html", folder / "figure.pdf"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"seeds": null}')
        os.utime(path, (1e9, 1e9))
    asked = ("demo", "quick", "html", tmp_path)
    assert drawn_file(*asked) == folder / "report.html"
    assert drawn_file("demo", "quick", "pdf", tmp_path) == folder / "figure.pdf"
    assert drawn_file("demo", "quick", "png", tmp_path) is None
    for path in (trial, folder / "begun.json"):
        os.utime(path, (2e9, 2e9))
        assert drawn_file(*asked) is None
        os.utime(path, (1e9, 1e9))
        assert drawn_file(*asked) is not None


def test_the_report_of_a_run_is_a_page_that_can_reach_nothing(tmp_path, pool):
    client = create_app(tmp_path, pool=pool).server.test_client()
    found = client.get("/report?name=demo&scale=quick&ended=2")
    assert (found.status_code, found.mimetype) == (200, "text/html")
    assert found.text.startswith("<!doctype html>")
    assert "rows agree with the source" in found.text
    policy = found.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    assert policy.endswith("frame-ancestors 'self'; sandbox allow-scripts allow-downloads")
    assert pool.counts()["bytes"] < 1_000_000  # the page itself, of megabytes, is not kept
    away = client.get("/report?name=demo&scale=quick", headers={"Sec-Fetch-Site": "cross-site"})
    assert away.status_code == 403
    missing = client.get("/report?name=demo&scale=huge")
    assert (missing.status_code, missing.mimetype) == (404, "text/plain")
    busy = create_app(tmp_path, pool=Refusing()).server.test_client()
    assert busy.get("/report?name=demo&scale=quick").text == "busy\n"


def test_files_wait_their_turn(tmp_path):
    client = create_app(tmp_path, pool=Refusing()).server.test_client()
    found = client.get("/download?name=demo&scale=quick&kind=pdf")
    assert (found.status_code, found.text) == (404, "busy\n")


def test_a_run_that_is_quiet_may_be_running(tmp_path):
    experiment = experiments.get("min-vidal-2024/figure-2")
    folder = tmp_path / experiment.name / "quick"
    folder.mkdir(parents=True)
    (folder / "begun.json").write_text('{"seeds": null}')
    paths = [experiments.Store(tmp_path).path(trial) for trial in experiment.trials("quick")]

    def row() -> tuple[str, str]:
        found = {(one.name, one.scale): one for one in listing(tmp_path)}
        one = found[experiment.name, "quick"]
        return f"{one.done} of {one.total}", runs_page.status(one)

    assert row() == ("0 of 12", "no trial done yet")
    paths[0].parent.mkdir(parents=True)
    paths[0].write_text("{}")
    assert row() == ("1 of 12", "running")
    for seconds, words in ((540, "9 min"), (7200, "2 h"), (300_000, "3 d")):
        long_ago = time.time() - seconds
        os.utime(paths[0], (long_ago, long_ago))
        assert row() == ("1 of 12", f"last trial {words} ago")
        assert changed(experiment.name, "quick", tmp_path) == pytest.approx(long_ago)


def test_the_page_of_a_run_is_refreshed_while_it_goes_on(monkeypatch, tmp_path):
    summary = detail("demo", "quick", tmp_path)

    def at(done: int) -> None:
        counts = {"done": done, "failed": 0, "total": 2}
        monkeypatch.setattr(runs_page, "detail", lambda *_: {**summary, "trials": counts})

    stored = runs_page.RunPages(Fixed(None), tmp_path)
    at(1)
    shown = str(stored.page("?name=demo&scale=quick"))
    assert "src='/report?name=demo&scale=quick&ended=1'" in shown
    assert "Interval(id='watch-run', disabled=False" in shown
    which = {"name": "demo", "scale": "quick", "ended": 1}
    assert set(stored.refresh(1, which)) == {no_update}
    at(2)
    fresh = dict(zip(runs_page.CHANGING_PLACES, stored.refresh(2, which), strict=True))
    assert fresh["report"] == "/report?name=demo&scale=quick&ended=2"
    assert fresh["which"] == {**which, "ended": 2}
    assert fresh["still"]  # and is not looked at any more


def test_other_sites_names_are_not_answered(tmp_path):
    client = create_app(tmp_path).server.test_client()
    assert client.get("/", headers={"Host": "127.0.0.1:8050"}).status_code == 200
    assert client.get("/", headers={"Host": "[::1]:8050"}).status_code == 200
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 403
    wide = create_app(tmp_path, host="0.0.0.0").server.test_client()
    assert wide.get("/", headers={"Host": "lab.example"}).status_code == 200
    policy = client.get("/").headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy

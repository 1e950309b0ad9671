"""What the stored benches must show, and what the docs say of them."""

import json
import time

import pytest
import torch

from bench import attack_optimality, certificate_fuzz, cluster, flow_fidelity
from bench._attack_cases import RandomCase
from bench._fidelity_cases import CASES, Case
from extremal import attack
from extremal.certify import reduced_networks
from extremal.experiments import Trial
from extremal.models import shallow_rounding
from tools.doc_tables import FOLDER


def stored(name: str) -> dict:
    return json.loads((FOLDER / f"{name}.json").read_text())


def test_flow_is_hundreds_of_times_faster_than_the_recipe():
    ratios = stored("flow")["ratios"]
    for p in (1, 3):
        assert ratios[f"recipe over flow, denormals flushed, known mixture, p = {p}"] >= 200
        assert ratios[f"recipe over flow, denormals flushed, plain x and y, p = {p}"] >= 100


def test_attacks_are_as_strong_as_autoattack_and_ten_times_faster():
    bench = stored("attack")
    settings = [found for name, found in bench["figures"].items() if name.startswith("p = ")]
    assert len(settings) == 24
    for found in settings:
        others = (found[name]["accuracy"] for name in ("apgd-ce", "autoattack"))
        assert found["ours"]["accuracy"] <= min(others)
    assert bench["ratios"]["autoattack over ours, seconds in total"] >= 10
    for p in (1, 2, 3, 4):
        assert bench["figures"][f"curve, p = {p}"]["largest gap"] <= 0.004
        assert bench["ratios"][f"15 radii over the whole curve, seconds, p = {p}"] >= 5


@pytest.mark.parametrize(("p", "tenth"), [(1, 0.95), (2, 0.95), (3, 0.95), (4, 0.90)])
def test_certificates_are_near_attacks_on_mnist(p, tenth):
    ratios = stored("certify")["ratios"]
    name = f"mnist, p = {p}"
    assert ratios[f"certified over attacked radius, quantile 0.5, {name}"] >= 0.985
    assert ratios[f"certified over attacked radius, quantile 0.1, {name}"] >= tenth


def test_certificates_are_near_attacks_on_the_mixture():
    bench = stored("certify")
    for p, radius, gap in ((1, 10**-0.5, 0.02), (3, 0.5**0.5, 0.01)):
        name = f"mixture, p = {p}"
        ratio = bench["ratios"][f"certified over attacked radius, quantile 0.01, {name}"]
        assert ratio >= 1 - gap
        for side in ("certified", "attacked"):
            median = bench["figures"][f"radii, {name}"][side]["0.5"]
            assert median == pytest.approx(radius, rel=0.02)


def test_the_distance_is_never_below_algorithm_1_and_far_faster():
    ratios = stored("distance")["ratios"]
    for p in (1, 3):
        assert ratios[f"algorithm 1 over ours, seconds, p = {p}"] >= 100
        assert ratios[f"our supremum at its scale over algorithm 1's value, p = {p}"] >= 1 - 1e-6
        assert ratios[f"our distance over our supremum at its scale, p = {p}"] <= 1 + 1e-9


def test_training_is_faster_than_a_plain_loop_and_finds_the_same():
    bench = stored("train")
    for p in bench["settings"]["powers"]:
        for loop in ("plain", "loader"):
            # With p = 1 a plain loop has little to do but two matrix products.
            least = 1.3 if (p, loop) == (1, "plain") else 1.5
            assert bench["ratios"][f"{loop} over ours, seconds, p = {p}"] >= least
        found = bench["figures"][f"p = {p}"]
        assert found["ours"]["epochs"] == found["plain"]["epochs"]
        # The same steps but for rounding: 20 of the 10,000 images may fall on the other side.
        assert found["ours"]["accuracy"] == pytest.approx(found["plain"]["accuracy"], abs=0.002)


@pytest.mark.parametrize("p", [1, 3])
def test_the_explorer_answers_before_the_recipe_has_begun(p):
    bench = stored("explore")
    assert bench["ratios"][f"recipe over answer, p = {p}"] >= 50
    assert bench["figures"][f"p = {p}"]["SGD steps to the same loss"] < 1000  # as the docs say


def test_two_workers_are_nearly_twice_as_fast_as_one():
    bench = stored("cluster")
    assert bench["ratios"]["efficiency of two workers, a trial waits"] >= 0.98
    assert bench["ratios"]["efficiency of two workers, a trial computes"] >= 0.88
    assert bench["settings"]["empty trials"] == 200
    assert bench["figures"]["seconds of the empty trials"]["on two warm workers"] < 3.0


def test_a_store_of_10_000_trials_costs_seconds():
    bench = stored("store")
    assert bench["settings"]["trials"] == {"small": 1000, "large": 10_000}
    for what in ("show", "resume", "list", "compact", "show, compacted", "resume, compacted"):
        assert bench["ratios"][f"{what}, large over small"] <= 10
        assert bench["figures"]["large"][what] < 60
    for size in ("small", "large"):
        assert bench["figures"][size]["damaged"] == {
            "named": True,
            "set aside": True,
            "missing until the next run": 1,
            "missing after it": 0,
        }


def test_a_run_of_the_cluster_bench_is_timed_from_its_call_to_its_return(tmp_path):
    trials = [Trial("bench.cluster:study", {"wait": 0.05}, seed) for seed in range(2)]
    begun = time.perf_counter()
    seconds = cluster.timed(trials, tmp_path / "place", {"jobs": 1})
    assert 0.1 <= seconds <= time.perf_counter() - begun
    with pytest.raises(AssertionError):  # They are done: a store that is not empty times nothing.
        cluster.timed(trials, tmp_path / "place", {"jobs": 1})


def test_there_are_enough_cases_of_the_flow_and_each_is_one_of_its_own():
    assert len(CASES) == len({case.name for case in CASES}) >= 150
    assert sum(case.sgd for case in CASES) >= 20


def test_a_case_of_the_flow_is_judged_once_and_kept(tmp_path, monkeypatch):
    small = {"dim": 5, "positive": 2, "negative": 1, "n": 100, "width": 8, "start": 1e-2}
    cases = [Case("tiny", **small, until=30.0, sgd=True), Case("tiny", **small, until=1.0)]
    found = flow_fidelity.judged_cases(cases, tmp_path)
    first = found[0]
    assert not any(each["fails"] for each in found)
    assert first["runs"]["flow"]["engine"] == "stages"
    assert first["runs"]["reference"]["engine"] == "weights"
    assert 0.0 < first["output_change"] < 1e-2
    assert first["SGD"]["output_change"] < 5e-2
    assert len(list(tmp_path.iterdir())) == 5

    monkeypatch.setattr(flow_fidelity.train, "gradient_flow", None)
    monkeypatch.setattr(flow_fidelity.train, "sgd", None)
    assert flow_fidelity.judged_cases(cases, tmp_path) == found
    result = flow_fidelity.summarised(found)
    assert result["ratios"]["failing share"] == 0.0
    assert flow_fidelity.table(result).count("\n") == 4


def test_a_flow_that_ends_elsewhere_fails_and_a_finer_one_warns(tmp_path):
    given = {"dim": 5, "positive": 2, "negative": 1, "n": 100, "width": 8, "p": 1.0}
    case = Case("rough", **given, until=60.0, tolerance=0.1, seed=2)
    found = flow_fidelity.judged(case, tmp_path)
    assert found["fails"]
    assert found["warned"] is True


@pytest.mark.parametrize("kind", certificate_fuzz.KINDS)
def test_the_fuzz_bench_finds_radii_that_are_too_large(kind, monkeypatch):
    """Some of each kind, as they are and with radii that are 30 % too large."""
    case = certificate_fuzz.case_of(kind, int(kind == "ties"), 12)
    found = certificate_fuzz.judged(case, torch.Generator().manual_seed(0), whole=False)
    assert found["pairs"] == 12
    assert found["violations"] == 0
    assert found["certified pairs"] > 0
    radius = certificate_fuzz.certify.radius
    monkeypatch.setattr(
        certificate_fuzz.certify, "radius", lambda *given, **more: 1.3 * radius(*given, **more)
    )
    found = certificate_fuzz.judged(case, torch.Generator().manual_seed(0), whole=False)
    assert found["violations"] > 0


def test_the_fuzz_bench_goes_on_where_it_stopped(tmp_path, monkeypatch):
    kinds = {"tiny": {"networks": 2, "points": 8}, "ties": {"networks": 2, "points": 8}}
    monkeypatch.setattr(certificate_fuzz, "KINDS", kinds)
    found = certificate_fuzz.measure(folder=tmp_path)
    assert found["figures"]["all"]["pairs"] == 32
    assert found["ratios"]["violations over pairs"] == 0.0
    monkeypatch.setattr(certificate_fuzz, "judged", None)
    assert certificate_fuzz.measure(folder=tmp_path) == found
    assert certificate_fuzz.table(found).count("\n") == 5


def test_the_optimality_bench_keeps_cases_and_sees_who_was_nearer(tmp_path, monkeypatch):
    """A rival that finds our points, and then one whose first is a tenth nearer."""
    cases = [RandomCase(2.0, "l2", False, 0), RandomCase(1.0, "linf", True, 0)]

    def rival(problem, norm, known):
        found = attack.minimal(
            problem.net,
            problem.x,
            problem.y,
            norm=norm,
            box=problem.box,
            generator=torch.Generator(),
        )
        return found.x_adv - problem.x

    monkeypatch.setattr(attack_optimality, "rivals", lambda p, norm: {"the same": rival})
    found = attack_optimality.compared(cases, tmp_path)
    assert all(ratio == 1.0 for case in found.values() for ratio in case["ratio"])
    for path in tmp_path.glob("*.json"):
        kept = json.loads(path.read_text())
        kept["radii"]["the same"][0] *= 0.9
        path.write_text(json.dumps(kept))
    monkeypatch.setattr(attack_optimality, "rivals", lambda p, norm: {"the same": None})
    monkeypatch.setattr(attack_optimality, "our_radii", None)
    again = attack_optimality.summary(attack_optimality.compared(cases, tmp_path))
    shares = again["figures"]["random, all"]
    assert shares["points"] == 8
    assert shares["within 1.01"] == 0.75
    assert shares["largest"] == pytest.approx(1 / 0.9)
    assert attack_optimality.table(again).count("\n") == 7


def test_a_whole_run_of_the_fuzz_bench_has_50_000_pairs():
    kinds = certificate_fuzz.KINDS.values()
    assert sum(kind["networks"] * kind["points"] for kind in kinds) >= 50_000


@pytest.mark.parametrize(("kind", "number"), [("ties", 52), ("extreme", 27), ("tiny", 76)])
def test_the_fuzz_bench_finds_certificates_that_ignore_float32(kind, number, monkeypatch):
    case = certificate_fuzz.case_of(kind, number, 128)
    assert case.x.dtype == torch.float32
    found = certificate_fuzz.judged(case, torch.Generator().manual_seed(0), whole=False)
    assert found["violations"] == 0
    monkeypatch.setattr(
        reduced_networks, "shallow_rounding", lambda net, _: shallow_rounding(net, torch.float64)
    )
    found = certificate_fuzz.judged(case, torch.Generator().manual_seed(0), whole=False)
    assert found["violations"] > 0

from __future__ import annotations

import hashlib
import math

import pytest
import torch

from extremal.experiments import Trial
from tests.experiments import helpers_toy as toy


def test_the_key_is_the_hash_of_the_canonical_content() -> None:
    text = '{"params":{"a":[1,2.5],"b":"x"},"seed":3,"study":"m:f","version":1}'
    expected = hashlib.sha256(text.encode()).hexdigest()
    assert Trial("m:f", {"b": "x", "a": (1, 2.5)}, 3).key == expected
    assert Trial("m:f", {"a": [1, 2.5], "b": "x"}, 3).key == expected


def test_the_key_tells_study_parameters_seed_and_version_apart() -> None:
    base = Trial("m:f", {"a": 1}, 0)
    others = [
        Trial("m:g", {"a": 1}, 0),
        Trial("m:f", {"a": 2}, 0),
        Trial("m:f", {"a": 1}, 1),
        Trial("m:f", {"a": 1}, 0, version=2),
    ]
    assert len({trial.key for trial in [base, *others]}) == 5


@pytest.mark.parametrize(
    ("study", "params", "seed", "message"),
    [
        ("module", {}, 0, "study must have the form 'module:function', got module"),
        ("m:f", {}, -1, "seed must be an integer >= 0, got -1"),
        ("m:f", {"a": math.nan}, 0, "a must be finite, got nan"),
        ("m:f", {"a": [1.0, {"b": torch.ones(1)}]}, 0, "a.b must be a JSON value"),
        ("m:f", {"a": {1: 2}}, 0, "a must have strings as keys, got 1"),
    ],
)
def test_bad_trials_are_refused(study: str, params: dict, seed: int, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        Trial(study, params, seed)


def test_the_seed_decides_the_numbers() -> None:
    first, again, other = (toy.trial(1, seed).compute(toy.study).numbers for seed in (5, 5, 6))
    assert first == again
    assert first["value"] != other["value"]


def test_a_study_that_changes_its_parameters_leaves_the_trial_as_it_was() -> None:
    trial = Trial(f"{toy.__name__}:greedy", {"level": 1, "list": [0]}, 0)
    key = trial.key
    trial.compute(toy.greedy)
    assert trial.params == {"level": 1, "list": [0]}
    assert trial.key == key


@pytest.mark.parametrize("flushed", [False, True])
def test_trials_run_on_one_thread_without_denormals_and_leave_no_trace(flushed: bool) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.set_flush_denormal(flushed)
    try:
        trial = Trial(f"{toy.__name__}:rounding", {}, 0)
        assert trial.compute(toy.rounding).numbers == {"threads": 1, "flushed": True}
        assert trial.compute(toy.rounding, threads=3).numbers == {"threads": 3, "flushed": True}
        assert torch.get_num_threads() == 2
        assert toy.flushes() == flushed
    finally:
        torch.set_flush_denormal(True)
        torch.set_num_threads(before)


def test_a_study_must_return_an_outcome() -> None:
    with pytest.raises(ValueError, match="no_outcome must return an Outcome"):
        Trial(f"{toy.__name__}:no_outcome", {}, 0).compute(toy.no_outcome)

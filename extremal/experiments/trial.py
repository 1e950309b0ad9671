"""One trial: a study, its parameters and a seed, with a key made of nothing else."""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from extremal._check import integer, require


@dataclass(frozen=True)
class Outcome:
    """What one trial found: small numbers (JSON values, lists among them) and larger arrays."""

    numbers: Mapping[str, Any]
    arrays: Mapping[str, Tensor] = field(default_factory=dict)


Study = Callable[[Mapping[str, Any], torch.Generator], Outcome]
"""What a trial computes, from its parameters and a generator of its seed."""


@dataclass(frozen=True)
class Trial:
    """A study ("module:function"), its parameters (JSON values, finite) and a seed.

    The name of a study is an id, which `registry.find_study` turns into its function. `version` is
    that of the study: a record raises it when the study computes something else, so that results
    of the old code are not taken for the new one's.
    """

    study: str
    params: Mapping[str, Any]
    seed: int
    version: int = 1

    def __post_init__(self) -> None:
        module, _, name = self.study.partition(":")
        good = bool(module) and name.isidentifier()
        require(good, "study", "have the form 'module:function'", self.study)
        integer("seed", self.seed, minimum=0)
        integer("version", self.version, minimum=1)
        require(isinstance(self.params, Mapping), "params", "be a mapping", self.params)
        for key, value in self.params.items():
            require(isinstance(key, str), "params", "have strings as keys", key)
            check_json(key, value, finite=True)

    @cached_property
    def key(self) -> str:
        """The content address: SHA-256 of the canonical JSON of all that defines the trial."""
        content = {
            "study": self.study,
            "version": self.version,
            "params": dict(self.params),
            "seed": self.seed,
        }
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def compute(self, study: Study, threads: int = 1) -> Outcome:
        """Run the study, this trial's function, with a generator of this trial's seed.

        On one torch thread unless somebody says otherwise, because results must not depend on how
        many trials share the machine. The study gets a copy of the parameters, so that changing
        them can't change this trial's key.
        """
        params = copy.deepcopy(dict(self.params))
        with _threads(threads):
            outcome = study(params, torch.Generator().manual_seed(self.seed))
        require(isinstance(outcome, Outcome), self.study, "return an Outcome", outcome)
        return outcome


def check_json(name: str, value: object, *, finite: bool) -> None:
    """Require that `value` is made of what JSON has, so that it comes back as it was written."""
    if isinstance(value, dict):
        for key, inner in value.items():
            require(isinstance(key, str), name, "have strings as keys", key)
            check_json(f"{name}.{key}", inner, finite=finite)
    elif isinstance(value, list | tuple):
        for inner in value:
            check_json(name, inner, finite=finite)
    else:
        plain = value is None or isinstance(value, str | int | float)
        seen = f"{type(value).__name__} {value!r}"
        require(plain, name, "be a JSON value (number, string, list, mapping)", seen)
        bounded = not (finite and isinstance(value, float)) or math.isfinite(value)
        require(bounded, name, "be finite", value)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """So many torch threads and no denormal numbers inside; as it was before afterwards."""
    before = torch.get_num_threads()
    # A product, because a denormal literal is read as zero by a process that flushes them.
    flushing = bool(torch.tensor(2.0**-1000, dtype=torch.float64) * 2.0**-60 == 0.0)
    torch.set_num_threads(count)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(flushing)
        torch.set_num_threads(before)

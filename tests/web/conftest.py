"""Two trained networks of the playground, and a pool that answers with them whatever is asked."""

from __future__ import annotations

import pytest

from extremal.web.answer_pool import AnswerPool, Deadline
from extremal.web.playground_settings import PlaygroundSettings
from extremal.web.playground_training import (
    RadiusBrackets,
    TrainedNetwork,
    attack_and_certify,
    train_flow,
)


@pytest.fixture(scope="session")
def answers() -> dict[float, RadiusBrackets]:
    """The default problem with p = 1 and with p = 3."""
    deadline = Deadline(300.0)
    return {
        p: attack_and_certify(train_flow(PlaygroundSettings(p=p), deadline), deadline)
        for p in (1.0, 3.0)
    }


@pytest.fixture(scope="session")
def trained(answers) -> dict[float, TrainedNetwork]:
    """The same, as far as training goes."""
    return {p: answer.trained for p, answer in answers.items()}


@pytest.fixture
def pool():
    made = AnswerPool(workers=1)
    yield made
    made.close()

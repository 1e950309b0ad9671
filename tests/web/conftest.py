"""Two trained networks of the playground, and a pool that answers with them whatever is asked."""

from __future__ import annotations

import pytest

from extremal.web.answer_pool import Deadline, Pool
from extremal.web.playground_settings import Setup
from extremal.web.playground_training import Answer, Trained, train_answer


@pytest.fixture(scope="session")
def answers() -> dict[float, Answer]:
    """The default problem with p = 1 and with p = 3."""
    return {p: train_answer(Setup(p=p), Deadline(300.0)) for p in (1.0, 3.0)}


@pytest.fixture(scope="session")
def trained(answers) -> dict[float, Trained]:
    """The same, as far as training goes."""
    return {p: answer.trained for p, answer in answers.items()}


@pytest.fixture
def pool():
    made = Pool(workers=1)
    yield made
    made.close()

"""The pool: one computation for equal questions, bounds, and questions that are given up."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from extremal.data import Dataset
from extremal.models import Gaussian, PReLUNet
from extremal.web.answer_pool import AnswerPool, Busy, Deadline, Superseded, TooLong, size_in_bytes
from extremal.web.pages import playground_answers
from extremal.web.playground_settings import PlaygroundSettings

WAIT = 30.0  # seconds, for what happens at once unless something is wrong


class Gate:
    """Work that waits to be let through, and counts how often it was begun."""

    def __init__(self) -> None:
        self.begun, self.opened, self.count = threading.Event(), threading.Event(), 0

    def work(self, deadline: Deadline) -> int:
        self.count += 1
        self.begun.set()
        while not self.opened.wait(0.01):
            deadline.check()
        return self.count


class Asking(threading.Thread):
    """Somebody who asks in a thread of its own, and what came of it."""

    def __init__(self, pool: AnswerPool, key, work, asker=None, turn=0) -> None:
        super().__init__(daemon=True)
        self.result = self.error = None
        self._ask = lambda: pool.ask(key, work, asker=asker, turn=turn)
        self.start()

    def run(self) -> None:
        try:
            self.result = self._ask()
        except (Superseded, ValueError) as error:
            self.error = error

    def done(self):
        self.join(WAIT)
        assert not self.is_alive()
        return self


def until(condition) -> None:
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_equal_questions_are_answered_once(pool):
    gate = Gate()
    people = [Asking(pool, "same", gate.work, asker=k) for k in range(5)]
    assert gate.begun.wait(WAIT)
    gate.opened.set()
    assert [person.done().result for person in people] == [1] * 5
    assert pool.ask("same", gate.work) == 1
    assert pool.counts() == {"kept": 1, "bytes": size_in_bytes(1), "jobs": 0}


def test_who_asks_again_gives_up_what_waits(pool):
    gate, never = Gate(), Gate()
    other = Asking(pool, "other", gate.work, asker="other")
    assert gate.begun.wait(WAIT)  # the only thread is taken
    first = Asking(pool, "first", never.work, asker="me")
    until(lambda: pool.counts()["jobs"] == 2)
    second = Asking(pool, "second", lambda _: "answer", asker="me")
    assert isinstance(first.done().error, Superseded)
    gate.opened.set()
    assert second.done().result == "answer"
    assert other.done().result == 1
    assert never.count == 0


def test_an_earlier_turn_neither_waits_nor_gives_up_a_later_one(pool):
    gate = Gate()
    other = Asking(pool, "other", gate.work, asker="other")
    assert gate.begun.wait(WAIT)
    later = Asking(pool, "later", lambda _: "answer", asker="me", turn=2)
    until(lambda: "later" in pool._jobs)
    with pytest.raises(Superseded):
        pool.ask("earlier", gate.work, asker="me", turn=1)
    assert set(pool._jobs) == {"other", "later"}
    gate.opened.set()
    assert (other.done().result, later.done().result) == (1, "answer")
    with pytest.raises(Superseded):  # though it is kept
        pool.ask("other", gate.work, asker="me", turn=1)
    assert pool.ask("other", gate.work, asker="me", turn=2) == 1
    assert pool.ask("other", gate.work, asker="you", turn=1) == 1


def test_a_slow_older_move_does_not_cancel_a_newer_one(pool, monkeypatch):
    """The older one asks for its drawing when the newer one waits for its own in the queue."""
    slow, others = Gate(), Gate()
    monkeypatch.setattr(
        playground_answers, "train_flow", lambda setup, deadline: (slow.work(deadline), setup.p)[1]
    )
    monkeypatch.setattr(playground_answers, "_drawn", lambda setup, found: ("drawn", *found))
    pool.ask(
        PlaygroundSettings(p=2.0), lambda _: 2.0
    )  # somebody has asked for the newer one's network
    play, came = playground_answers.Playground(pool), {}

    def show(p: float, turn: int) -> None:
        try:
            came[p] = play.show({"p": p, "turn": turn}, "me")
        except Superseded:
            came[p] = "superseded"

    older = threading.Thread(target=show, args=(1.0, 1))
    older.start()
    assert slow.begun.wait(WAIT)  # the only thread is taken
    queued = Asking(pool, "others", others.work, asker="other")
    until(lambda: "others" in pool._jobs)
    newer = threading.Thread(target=show, args=(2.0, 2))
    newer.start()
    until(lambda: len(pool._jobs) == 3)
    slow.opened.set()
    older.join(WAIT)
    others.opened.set()
    newer.join(WAIT)
    assert came == {1.0: "superseded", 2.0: ("drawn", 2.0)}
    assert queued.done().result == 1


def test_an_old_answer_is_replaced_in_place(pool):
    assert pool.ask("now", lambda _: "a") == "a"
    pool.ask("another", lambda _: "b")
    assert pool.ask("now", lambda _: "c", age=60.0) == "a"
    before = pool.counts()
    time.sleep(0.01)
    assert pool.ask("now", lambda _: "d", age=0.005) == "d"
    assert pool.counts() == before


def test_bytes_are_those_of_tensors_text_and_what_is_made_of_them():
    numbers = torch.zeros(1000, dtype=torch.float64)
    assert size_in_bytes(numbers) == pytest.approx(8000, abs=1000)
    held = {"x": [numbers, (numbers,)], "words": "w" * 5000, 1: None}
    assert size_in_bytes(held) == pytest.approx(21_000, rel=0.15)
    assert size_in_bytes(Dataset(numbers[:, None], torch.ones(1000))) == pytest.approx(
        16_000, rel=0.25
    )
    generator = torch.Generator().manual_seed(0)
    net = PReLUNet(100, 50, 2.0, init=Gaussian(0.1), generator=generator)
    assert size_in_bytes(net) == pytest.approx(4 * 50 * 101, rel=0.2)
    assert size_in_bytes(list(range(1000, 11_000))) == pytest.approx(360_000, rel=0.05)


def test_what_runs_goes_on_and_is_kept(pool):
    gate = Gate()
    first = Asking(pool, "slow", gate.work, asker="me")
    assert gate.begun.wait(WAIT)
    later = Asking(pool, "quick", lambda _: 7, asker="me")
    until(lambda: "quick" in pool._jobs)
    gate.opened.set()
    assert (first.done().result, later.done().result) == (1, 7)
    assert pool.ask("slow", gate.work, asker="me") == 1
    assert gate.count == 1


def test_others_still_get_what_somebody_gave_up(pool):
    shared = Gate()
    people = [Asking(pool, "shared", shared.work, asker=name) for name in ("me", "you")]
    assert shared.begun.wait(WAIT)
    until(lambda: len(pool._jobs["shared"].askers) == 2)
    third = Asking(pool, "third", lambda _: 3, asker="me")
    until(lambda: "third" in pool._jobs)
    shared.opened.set()
    assert [person.done().result for person in people] == [1, 1]
    assert third.done().result == 3


def test_too_many_questions_are_refused():
    pool, gate = AnswerPool(workers=1, waiting=2), Gate()
    people = [Asking(pool, k, gate.work) for k in range(2)]
    until(lambda: pool.counts()["jobs"] == 2)
    with pytest.raises(Busy, match="try again"):
        pool.ask("one more", gate.work)
    gate.opened.set()
    for person in people:
        assert person.done().error is None
    pool.close()


def test_an_answer_may_not_take_for_ever():
    pool = AnswerPool(workers=1, seconds=0.05)

    def endless(deadline: Deadline) -> None:
        while True:
            deadline.check()

    with pytest.raises(TooLong, match=r"0\.05 s of computing"):
        pool.ask("endless", endless)
    assert pool.counts() == {"kept": 0, "bytes": 0, "jobs": 0}
    pool.close()


def test_the_last_answers_are_kept_within_bounds():
    pool = AnswerPool(workers=1, answers=3, most=100)
    for key in range(5):
        pool.ask(key, lambda _, key=key: key, size=lambda _: 10)
    assert pool.counts() == {"kept": 3, "bytes": 30, "jobs": 0}
    assert pool.ask(4, lambda _: "anew") == 4
    assert pool.ask(0, lambda _: "anew", size=lambda _: 90) == "anew"
    assert pool.counts() == {"kept": 2, "bytes": 100, "jobs": 0}
    pool.ask("large", lambda _: None, size=lambda _: 101)
    assert pool.counts()["kept"] == 2
    pool.close()


def test_errors_are_told_to_all_and_not_kept(pool):
    def broken(_: Deadline) -> None:
        raise ValueError("so it is")

    for _ in range(2):
        with pytest.raises(ValueError, match="so it is"):
            pool.ask("broken", broken)
    assert pool.ask("broken", lambda _: "mended") == "mended"

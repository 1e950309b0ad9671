"""The pool: one computation for equal questions, bounds, and questions that are given up."""

from __future__ import annotations

import threading
import time

import pytest

from extremal.web.pool import Busy, Deadline, Pool, Superseded, TooLong

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

    def __init__(self, pool: Pool, key, work, asker=None) -> None:
        super().__init__(daemon=True)
        self.result = self.error = None
        self._ask = lambda: pool.ask(key, work, asker=asker)
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
    assert pool.counts() == {"kept": 1, "bytes": 1_000_000, "jobs": 0}


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
    pool, gate = Pool(workers=1, waiting=2), Gate()
    people = [Asking(pool, k, gate.work) for k in range(2)]
    until(lambda: pool.counts()["jobs"] == 2)
    with pytest.raises(Busy, match="try again"):
        pool.ask("one more", gate.work)
    gate.opened.set()
    for person in people:
        assert person.done().error is None
    pool.close()


def test_an_answer_may_not_take_for_ever():
    pool = Pool(workers=1, seconds=0.05)

    def endless(deadline: Deadline) -> None:
        while True:
            deadline.check()

    with pytest.raises(TooLong, match=r"0\.05 s of computing"):
        pool.ask("endless", endless)
    assert pool.counts() == {"kept": 0, "bytes": 0, "jobs": 0}
    pool.close()


def test_the_last_answers_are_kept_within_bounds():
    pool = Pool(workers=1, answers=3, most=100)
    for key in range(5):
        pool.ask(key, lambda _, key=key: key, size=10)
    assert pool.counts() == {"kept": 3, "bytes": 30, "jobs": 0}
    assert pool.ask(4, lambda _: "anew") == 4
    assert pool.ask(0, lambda _: "anew", size=90) == "anew"
    assert pool.counts() == {"kept": 2, "bytes": 100, "jobs": 0}
    pool.ask("large", lambda _: None, size=101)
    assert pool.counts()["kept"] == 2
    pool.close()


def test_errors_are_told_to_all_and_not_kept(pool):
    def broken(_: Deadline) -> None:
        raise ValueError("so it is")

    for _ in range(2):
        with pytest.raises(ValueError, match="so it is"):
            pool.ask("broken", broken)
    assert pool.ask("broken", lambda _: "mended") == "mended"

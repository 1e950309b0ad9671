"""Trials on a Dask cluster, for as long as its scheduler is there or comes back."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from extremal._check import require
from extremal.experiments.connection import ClusterError, LostSchedulerError, connected
from extremal.experiments.executor import Executor, Tally
from extremal.experiments.files import write_whole
from extremal.experiments.fleet import Fleet, Notice
from extremal.experiments.store import TOKENS, Store
from extremal.experiments.trial import Trial
from extremal.experiments.workload import Workload

_CONNECT = 10.0  # seconds for a first connection
_PATIENCE = 120.0  # seconds for a scheduler that was lost to come back
_INSTALL = (
    "--cluster needs Dask, an extra of this package: python -m pip install 'extremal[cluster]'"
)


class Cluster(Executor):
    """Trials on the workers of a Dask scheduler, of which `notice` is told what people should know.

    Results come back to the client's store. A trial that dies, with its process or with its worker,
    is tried again `retries` times in all; a scheduler that is lost is waited for.
    """

    def __init__(self, address: str, retries: int, notice: Notice) -> None:
        try:
            import distributed  # noqa: F401, PLC0415 - an extra
        except ImportError as error:
            raise ClusterError(_INSTALL) from error
        good = "://" in address and not address.endswith("://")
        require(good, "cluster", "be an address such as tcp://host:8786", address)
        self.address, self.retries, self.notice = address, retries, notice

    def run(self, pending: list[Trial], store: Store, tally: Tally) -> None:
        """Compute these trials; see `Executor`."""
        patience = _CONNECT
        with _token(store) as token:
            work = Workload(_turned(pending, store, token), self.retries)
            while work.left():
                with connected(self.address, patience) as client:
                    fleet = Fleet(client, work, store, tally, token, self.notice)
                    with suppress(LostSchedulerError):
                        fleet.run()
                        break
                work.all_back()
                tally.tell(running=0)
                self.notice(f"lost the scheduler at {self.address}; waiting for it to come back")
                patience = _PATIENCE


@contextmanager
def _token(store: Store) -> Iterator[str]:
    """A file in the store by which workers know that they see this very folder."""
    name = TOKENS.replace("*", uuid.uuid4().hex)
    write_whole(store.root / name, b"")
    try:
        yield name
    finally:
        with suppress(OSError):
            (store.root / name).unlink()


def _turned(pending: list[Trial], store: Store, token: str) -> list[Trial]:
    """Begin elsewhere where another client has this folder, not to compute what it does just now.

    The place is random, of the token's own seed; results do not depend on the order.
    """
    if all(path.name == token for path in store.root.glob(TOKENS)):
        return pending
    start = random.Random(token).randrange(len(pending))
    return pending[start:] + pending[:start]

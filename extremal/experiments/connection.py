"""The connection to a Dask scheduler: made, kept for a while, and told from everything else."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


class ClusterError(ValueError):
    """A cluster can't be used: nobody answers, or its workers have other versions."""


class LostSchedulerError(Exception):
    """The connection to the scheduler broke; what was running there is running no more."""


@contextmanager
def connected(address: str, patience: float) -> Iterator[Any]:
    """A client of the scheduler at an address, which may take `patience` seconds to answer."""
    from distributed import Client  # noqa: PLC0415 - an extra
    from distributed.versions import VersionMismatchWarning  # noqa: PLC0415

    deadline = time.monotonic() + patience
    while True:
        try:
            with warnings.catch_warnings():
                # We look for ourselves, and more closely.
                warnings.simplefilter("ignore", VersionMismatchWarning)
                client = Client(address, timeout=max(1.0, deadline - time.monotonic()))
            break
        except (OSError, ValueError) as error:  # Dask's TimeoutError is an OSError
            if time.monotonic() >= deadline:
                raise ClusterError(f"no Dask scheduler answers at {address}: {error}") from error
            time.sleep(0.5)
    try:
        yield client
    finally:
        with suppress(Exception):
            client.close(timeout=5)


@contextmanager
def scheduler_errors() -> Iterator[None]:
    """Tell a connection that broke from everything else."""
    from distributed import CancelledError  # noqa: PLC0415 - an extra

    try:
        yield
    except (CancelledError, OSError) as error:  # Dask's errors of connections are OSErrors
        raise LostSchedulerError from error

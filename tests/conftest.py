"""Set-up for every test: one thread (two test processes share two cores), flushed denormals."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.helpers_fork import ForkServer

# A background job inherits an ignored Ctrl-C, and so would the processes that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

torch.set_num_threads(1)
torch.set_flush_denormal(True)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """Starts processes quickly, for tests that need one of their own."""
    server = ForkServer(tmp_path_factory.mktemp("forks"))
    yield server
    server.close()


@pytest.fixture
def users_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of a user's, whose modules are forgotten afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]

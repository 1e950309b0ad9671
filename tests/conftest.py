"""Set-up for every test: one thread (two test processes share two cores), flushed denormals."""

import signal

import pytest
import torch

# A background job inherits an ignored Ctrl-C, and so would the processes that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

torch.set_num_threads(1)
torch.set_flush_denormal(True)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)

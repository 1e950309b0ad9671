"""Set-up for every test: one thread (two test processes share two cores), flushed denormals."""

import pytest
import torch

torch.set_num_threads(1)
torch.set_flush_denormal(True)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)

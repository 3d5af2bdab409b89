"""Tests that need a GPU: skipped without one."""

import os

import pytest
import torch

# Without it cuBLAS may compute the same product another way the next time.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@pytest.fixture(autouse=True)
def _needs_a_gpu():
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")


@pytest.fixture
def device():
    """The device that models are on."""
    return torch.device("cuda")

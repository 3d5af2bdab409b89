"""Runs pytest with the plugin, in this process and on separate files."""

import textwrap

import pytest
import torch
from torch import nn

from gradscope.testing import UnhealthyGradientsError, assert_gradients_healthy

MODELS = """
    import pytest
    import torch
    from torch import nn
    from torch.nn.functional import mse_loss

    class Cut(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = nn.Linear(4, 3), nn.Linear(3, 4)

        def forward(self, x):
            return self.decoder(self.encoder(x)).detach().requires_grad_() * 2

    torch.manual_seed(0)
    BATCH = torch.randn(8, 4), torch.randn(8, 4)
    HEALTHY, CUT = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 4)), Cut()
"""
"""What test files of the tests begin with."""


@pytest.fixture(scope="session", autouse=True)
def _everything_is_imported():
    """pytester forgets modules that a run has imported, and torch must not be imported twice."""
    model, x = nn.Linear(2, 2), torch.ones(1, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert_gradients_healthy(model, x, grad_output="ones", optimizer=optimizer)
    with pytest.raises(UnhealthyGradientsError):
        assert_gradients_healthy(model, x, lambda output: output.detach().sum())


@pytest.fixture
def run_tests(pytester, monkeypatch):
    """Run the text of a test file, behind `MODELS`, and return what pytest makes of it."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("COLUMNS", "200")

    def run(text, *arguments):
        pytester.makepyfile(test_it=textwrap.dedent(MODELS) + textwrap.dedent(text))
        options = (
            "-p",
            "gradscope.integrations.pytest_plugin",
            "--strict-markers",
            "--import-mode=importlib",
        )
        return pytester.runpytest_inprocess(*options, *arguments)

    return run

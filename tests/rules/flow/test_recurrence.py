"""Explosions through time that losses at every step hide from the spine."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

import gradscope
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.recurrence import recurrences
from tests.nightly import some_on_push
from tests.rules.inspecting import only

STEPS = 24


class Tagger(nn.Module):
    """A linear loop whose state is read after every step."""

    def __init__(self, gain: float, size: int = 16) -> None:
        super().__init__()
        self.inputs, self.out = nn.Linear(4, size), nn.Linear(size, 3)
        self.weight = nn.Parameter(gain * torch.linalg.qr(torch.randn(size, size))[0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state, read = torch.zeros(len(x), len(self.weight)), []
        for t in range(x.shape[1]):
            state = self.inputs(x[:, t]) + state @ self.weight
            read.append(self.out(state))
        return torch.stack(read, 1)


def inspected(model: nn.Module, steps: int = STEPS, **chosen: object):
    batch = torch.randn(8, steps, 4), torch.randint(0, 3, (8, steps))
    return gradscope.inspect(
        model, batch, lambda y, t: functional.cross_entropy(y.flatten(0, 1), t.flatten()), **chosen
    )


def test_growth_through_time_is_found_with_a_loss_at_every_step():
    found = only(inspected(Tagger(3.0)).findings, "GS101")
    assert found.severity == "error"
    assert "weight" in found.parameters
    assert "24 iterations of a loop" in found.message
    # Three quarters of the steps lie between the middles of the first and the last quarter.
    expected = 0.75 * STEPS * math.log10(3.0) - math.log10(STEPS)
    assert dict(found.evidence)["decades"] == pytest.approx(expected, abs=1.0)


@pytest.mark.parametrize("gain", some_on_push([0.5, 1.0, 1.05], {2}))
def test_sums_over_many_losses_are_no_explosion(gain):
    findings = inspected(Tagger(gain), steps=64).findings
    assert "GS101" not in {finding.rule for finding in findings}


def test_losses_that_weigh_early_steps_more_are_no_explosion():
    class Early(Tagger):
        def forward(self, x):
            weights = torch.where(torch.arange(STEPS) < STEPS // 2, 1.0, 1e-6)
            return super().forward(x) * weights[:, None]

    assert "GS101" not in {finding.rule for finding in inspected(Early(1.0)).findings}


def test_layers_that_only_stand_beside_each_other_are_no_recurrence():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.tower, self.scale = nn.Linear(4, 3), torch.logspace(0, 6, STEPS)

        def forward(self, x):
            return torch.stack([self.tower(x[:, t]) * self.scale[t] for t in range(STEPS)], 1)

    report = inspected(Shared(), probe_steps=0)
    assert not list(recurrences(RuleContext(report.recording)))


def test_without_a_later_step_it_is_a_warning():
    found = only(inspected(Tagger(3.0), probe_steps=0).findings, "GS101")
    assert found.severity == "warning"


@pytest.mark.parametrize("kind", some_on_push([nn.LSTMCell, nn.GRUCell, nn.RNNCell], {2}))
def test_cells_at_their_initialisation_are_healthy(kind):
    class Cells(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.out = kind(4, 16), nn.Linear(16, 3)

        def forward(self, x):
            state, read = None, []
            for t in range(x.shape[1]):
                state = self.cell(x[:, t], state)
                read.append(self.out(state[0] if isinstance(state, tuple) else state))
            return torch.stack(read, 1)

    findings = inspected(Cells(), steps=48).findings
    assert "GS101" not in {finding.rule for finding in findings}


class Scan(nn.Module):
    """A state space model: every step multiplies the state by a factor made from the input."""

    def __init__(self, sign: float, size: int = 16) -> None:
        super().__init__()
        self.inputs, self.step, self.out = (
            nn.Linear(4, size),
            nn.Linear(4, size),
            nn.Linear(size, 3),
        )
        self.sign = sign

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        drive = self.inputs(x)
        factor = torch.exp(self.sign * functional.softplus(self.step(x)))
        state, read = torch.zeros_like(drive[:, 0]), []
        for t in range(x.shape[1]):
            state = factor[:, t] * state + drive[:, t]
            read.append(self.out(state))
        return torch.stack(read, 1)


def test_factor_above_one_in_a_loop_without_weights_explodes():
    found = only(inspected(Scan(1.0)).findings, "GS101")
    assert found.severity == "error"
    assert found.location is not None
    assert found.location.source == "state = factor[:, t] * state + drive[:, t]"
    (made,) = found.related
    assert made.source.startswith("factor = torch.exp")


@pytest.mark.parametrize("sign", some_on_push([-1.0, -0.1, 0.0, 0.02], {0, 3}))
def test_factor_of_about_one_or_less_is_no_explosion(sign):
    assert "GS101" not in {finding.rule for finding in inspected(Scan(sign)).findings}


def test_products_in_parallel_are_no_recurrence():
    class Parallel(Scan):
        def forward(self, x):
            drive = self.inputs(x)
            scale = torch.logspace(0, 6, x.shape[1])
            return torch.stack([self.out(scale[t] * drive[:, t]) for t in range(x.shape[1])], 1)

    report = inspected(Parallel(1.0), probe_steps=0)
    assert not list(recurrences(RuleContext(report.recording)))

"""Policies whose log-probabilities are made into a new tensor, from which backward starts."""

import pytest
import torch
from torch import nn
from torch.distributions import Categorical

from tests.rules.watching import findings_of

LOG: list[float] = []
X = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))


def told(folder, loss):
    """Train a policy on a loss of its log-probabilities and drawn actions."""
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))

    def train():
        optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
        for _ in range(6):
            chosen = Categorical(policy(X).softmax(dim=1))
            actions = chosen.sample()
            rewards = (actions == 1).float() - 0.5
            optimizer.zero_grad()
            loss(chosen.log_prob(actions), actions, rewards).backward()
            optimizer.step()

    return [one for one in findings_of(train, folder) if one.rule in ("GS201", "GS202", "GS217")]


def rewrapped(log_probs, _actions, rewards):
    again = torch.tensor([one.item() for one in log_probs], requires_grad=True)
    return -(again * rewards).sum()


def listed(log_probs, _actions, rewards):
    return -(torch.tensor(log_probs.tolist(), requires_grad=True) * rewards).sum()


def detached(log_probs, _actions, rewards):
    return -(torch.tensor(log_probs.detach().numpy(), requires_grad=True) * rewards).sum()


def draws(log_probs, actions, rewards):
    LOG.append(log_probs.mean().item())
    scale = torch.ones((), requires_grad=True)
    return (scale * actions.float() * rewards).sum()


def linked(log_probs, _actions, rewards):
    LOG.append(log_probs.mean().item())
    return -(log_probs * rewards).sum()


@pytest.mark.parametrize(
    ("loss", "call"), [(rewrapped, "item()"), (listed, "tolist()"), (detached, "detach()")]
)
def test_line_that_makes_a_new_tensor_is_the_cause(loss, call, tmp_path):
    (found,) = told(tmp_path, loss)
    assert found.rule == "GS201"
    assert found.severity == "error"
    assert call in found.message
    assert "requires_grad=True" in found.location.source


def test_draw_remains_the_cause_beside_a_number_for_a_log(tmp_path):
    (found,) = told(tmp_path, draws)
    assert found.rule == "GS202"
    assert "item()" not in found.message


def test_log_probabilities_with_their_graph_are_healthy(tmp_path):
    assert told(tmp_path, linked) == []

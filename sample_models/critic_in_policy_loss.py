"""An actor and a critic whose advantage carries the critic's gradient into the policy's loss."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Categorical
from torch.nn import functional


class Rollout(NamedTuple):
    """What an agent saw, did, and got for it."""

    state: Tensor
    action: Tensor
    returns: Tensor


class Agent(nn.Module):
    """A policy over three actions, and an estimate of the return."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 3))
        self.critic = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1))

    def forward(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits `[batch, 3]` and values `[batch]` of states `[batch, 6]`."""
        return self.actor(state), self.critic(state).squeeze(1)


def build_model() -> nn.Module:
    """An agent."""
    torch.manual_seed(0)
    return Agent()


def build_batch() -> Rollout:
    """Forty-eight steps of a rollout."""
    generator = torch.Generator().manual_seed(1)
    return Rollout(
        state=torch.randn(48, 6, generator=generator),
        action=torch.randint(3, (48,), generator=generator),
        returns=torch.randn(48, generator=generator),
    )


def compute_loss(model: nn.Module, batch: Rollout) -> Tensor:
    """The policy's loss, and half of the critic's."""
    logits, value = model(batch.state)
    advantage = batch.returns - value  # GS705
    policy_loss = -(Categorical(logits=logits).log_prob(batch.action) * advantage).mean()
    return policy_loss + 0.5 * functional.mse_loss(value, batch.returns)


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)

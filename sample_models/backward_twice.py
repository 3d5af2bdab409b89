"""An actor and a critic on one trunk, each with a backward of its own.

The critic's backward uses up the trunk's graph, and the actor's comes to it a second time. The two
losses added up need one backward.
"""

import torch
from torch import Tensor, nn


class ActorCritic(nn.Module):
    """Two heads on one trunk."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Linear(4, 32)
        self.actor = nn.Linear(32, 2)
        self.critic = nn.Linear(32, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the actions' logits and the value."""
        features = torch.tanh(self.trunk(x))  # GS502
        return self.actor(features), self.critic(features).squeeze(-1)


def build_model() -> nn.Module:
    """Return the model."""
    return ActorCritic()


def build_batch() -> tuple[Tensor, Tensor, Tensor]:
    """Return observations, actions and returns."""
    return torch.randn(16, 4), torch.randint(0, 2, (16,)), torch.randn(16)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Train the critic at once, and return the actor's loss."""
    observations, actions, returns = batch
    logits, values = model(observations)
    nn.functional.mse_loss(values, returns).backward()
    advantages = returns - values.detach()
    chosen = torch.log_softmax(logits, -1).gather(-1, actions[:, None]).squeeze(-1)
    return -(chosen * advantages).mean()

"""A policy whose ratio compares the new log-probabilities with themselves."""

import torch
from torch import Tensor, nn


class Policy(nn.Module):
    """A policy over four actions, and an estimate of the return."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 4))
        self.critic = nn.Linear(6, 1)

    def forward(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities `[batch, 4]` and values `[batch]` of states `[batch, 6]`."""
        return self.actor(state).log_softmax(1), self.critic(state).squeeze(1)


def build_model() -> nn.Module:
    """A policy."""
    torch.manual_seed(0)
    return Policy()


def build_batch() -> tuple[Tensor, Tensor]:
    """Thirty-two states and returns."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(32, 6, generator=generator), torch.randn(32, generator=generator)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """The clipped surrogate, an entropy bonus, and the loss of the value."""
    state, returns = batch
    logarithms, value = model(state)
    new = logarithms[:, 0]
    old = new
    ratio = (new - old).exp()  # GS713
    advantage = returns - value.detach()
    surrogate = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    entropy = -(logarithms.exp() * logarithms).sum(1).mean()
    return (value - returns).square().mean() - surrogate - 0.01 * entropy

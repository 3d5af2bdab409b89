"""Q-learning in which the target is drawn to the prediction.

The value of the next state comes from the network that is trained, and nothing keeps the gradient
out of it.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional


class Transitions(NamedTuple):
    """Steps of an agent in its environment."""

    state: Tensor
    action: Tensor
    reward: Tensor
    next_state: Tensor


def build_model() -> nn.Module:
    """A network that maps states `[batch, 6]` to the values of three actions."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 3))


def build_batch() -> Transitions:
    """Forty-eight transitions from a replay buffer."""
    generator = torch.Generator().manual_seed(1)
    return Transitions(
        state=torch.randn(48, 6, generator=generator),
        action=torch.randint(3, (48,), generator=generator),
        reward=torch.randn(48, generator=generator),
        next_state=torch.randn(48, 6, generator=generator),
    )


def compute_loss(model: nn.Module, batch: Transitions) -> Tensor:
    """The temporal-difference error with a discount of 0.95."""
    value = model(batch.state).gather(1, batch.action.unsqueeze(1)).squeeze(1)
    next_value = model(batch.next_state).max(dim=1).values
    target = batch.reward + 0.95 * next_value  # GS211
    return functional.smooth_l1_loss(value, target)


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)

"""What a look-alike is: healthy code with something about it that a rule might take for sick."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What `gradscope.inspect` is called with."""

    model: nn.Module
    batch: object
    loss_fn: Callable[..., Tensor]
    optimizer: torch.optim.Optimizer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookalike:
    name: str
    build: Callable[[], Step]


def lookalikes(*builders: Callable[[], Step]) -> tuple[Lookalike, ...]:
    """Name cases as their functions."""
    return tuple(Lookalike(name=build.__name__, build=build) for build in builders)


def adam(model: nn.Module, lr: float = 1e-3) -> torch.optim.Optimizer:
    return torch.optim.AdamW(
        [parameter for parameter in model.parameters() if parameter.requires_grad], lr=lr
    )


def classification(
    model: nn.Module, *shape: int, classes: int = 4, batch: int = 16, trained: bool = True
) -> Step:
    """A step on random inputs of a shape, with an optimizer unless it is not `trained`."""
    data = (torch.randn(batch, *shape), torch.arange(batch) % classes)
    return Step(
        model=model,
        batch=data,
        loss_fn=functional.cross_entropy,
        optimizer=adam(model) if trained else None,
    )


def regression(model: nn.Module, features: int, outputs: int = 1, batch: int = 32) -> Step:
    """A step on random inputs and a target that depends on them."""
    x = torch.randn(batch, features)
    target = x[:, :outputs].sin() + 0.1 * torch.randn(batch, outputs)
    return Step(model=model, batch=(x, target), loss_fn=functional.mse_loss, optimizer=adam(model))


def mlp(*widths: int, activation: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    """Linear layers of these widths with an activation between each two."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), activation()]
    return nn.Sequential(*layers[:-1])

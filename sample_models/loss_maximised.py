"""A classifier whose loss is the log-likelihood, which a step makes smaller."""

import torch
from torch import Tensor, nn
from torch.nn import functional


def build_model() -> nn.Module:
    """A classifier of three classes."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 3))


def build_batch() -> tuple[Tensor, Tensor]:
    """Thirty-two inputs and their classes."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(32, 6, generator=generator)
    return inputs, inputs[:, :3].argmax(1)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """The log-likelihood of the classes, which should be maximised."""
    inputs, classes = batch
    log_likelihood = -functional.cross_entropy(model(inputs), classes)  # GS720
    return log_likelihood / 2

"""A frozen backbone that an optimizer of one's own shrinks away step by step.

The optimizer decays every weight in its groups, whether it has a gradient or not.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional


class SignDescent(torch.optim.Optimizer):
    """Steps by the sign of the gradient, with decoupled weight decay."""

    def __init__(self, parameters: Iterable[Tensor], lr: float, weight_decay: float) -> None:
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:
        """Decay, then step."""
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                if parameter.grad is not None:
                    parameter.add_(parameter.grad.sign(), alpha=-group["lr"])


class Probe(nn.Module):
    """A head on a frozen backbone."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.Linear(64, 32), nn.GELU())
        self.head = nn.Linear(32, 4)

    def forward(self, features: Tensor) -> Tensor:
        """Map `[batch, 20]` to logits `[batch, 4]`."""
        return self.head(self.backbone(features))


def build_model() -> nn.Module:
    """The probe, its backbone frozen."""
    torch.manual_seed(0)
    model = Probe()
    model.backbone.requires_grad_(False)
    return model


def build_batch() -> tuple[Tensor, Tensor]:
    """Points of four classes, each around a centre of its own."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(4, 20, generator=generator)
    target = torch.arange(32) % 4
    return centres[target] + 0.5 * torch.randn(32, 20, generator=generator), target


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of the logits."""
    return functional.cross_entropy(output, target)


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer over every parameter, the frozen ones among them."""
    return SignDescent(model.parameters(), lr=1e-3, weight_decay=0.1)  # GS212

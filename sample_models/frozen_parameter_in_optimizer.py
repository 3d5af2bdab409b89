"""A pretrained backbone that is frozen under a new head, while the optimizer holds both.

Nothing goes wrong as long as the backbone's gradients are None; it is a trap for later.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Probe(nn.Module):
    """A head on a frozen backbone."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.head = nn.Linear(32, 4)

    def forward(self, features: Tensor) -> Tensor:
        """Map `[batch, 20]` to logits `[batch, 4]`."""
        return self.head(self.backbone(features))


def build_model() -> nn.Module:
    """The probe, its backbone frozen."""
    torch.manual_seed(0)
    model = Probe()
    for layer in (model.backbone[0], model.backbone[2]):
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    model.backbone.requires_grad_(False)
    return model


def build_batch() -> tuple[Tensor, Tensor]:
    """Points of four classes, each around a centre of its own."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(4, 20, generator=generator)
    target = torch.arange(96) % 4
    return centres[target] + 0.5 * torch.randn(96, 20, generator=generator), target


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of the logits."""
    return functional.cross_entropy(output, target)


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter, the frozen ones among them."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)  # GS208

"""Transfer learning that froze the wrong half: the new classifier learns nothing.

The loop freezes by name, and the condition is the wrong way round: the backbone is trained to fit
a random classifier.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Classifier(nn.Module):
    """A backbone and a classifier."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 24), nn.GELU(), nn.Linear(24, 24), nn.GELU()
        )
        self.classifier = nn.Linear(24, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, 12]` to logits `[batch, classes]`."""
        return self.classifier(self.backbone(x))


def build_model() -> nn.Module:
    """A backbone that stands for a pretrained one, with a new classifier."""
    torch.manual_seed(0)
    model = Classifier(classes=100)
    model.classifier = nn.Linear(24, 5)
    for name, parameter in model.named_parameters():
        if not name.startswith("backbone"):
            parameter.requires_grad_(False)  # GS214
    return model


def build_batch() -> tuple[Tensor, Tensor]:
    """Forty random inputs of five classes."""
    x = torch.randn(40, 12, generator=torch.Generator().manual_seed(1))
    return x, torch.arange(40) % 5


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of the logits."""
    return functional.cross_entropy(output, target)


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over what is not frozen."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.AdamW(trained, lr=1e-3)

"""A mixture of experts whose balance is never added to the loss."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Mixture(nn.Module):
    """Sends each token to the expert with the largest weight."""

    def __init__(self, width: int = 16, experts: int = 4) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(experts))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output of `[tokens, width]`, and the balance of the experts."""
        shares = self.gate(x).softmax(-1)
        weight, chosen = shares.max(-1)
        outputs = torch.stack([expert(x) for expert in self.experts], 1)
        output = outputs[torch.arange(len(x)), chosen] * weight[:, None]
        load = functional.one_hot(chosen, len(self.experts)).float().mean(0)
        return x + output, len(self.experts) * (load * shares.mean(0)).sum()


class Classifier(nn.Module):
    """A mixture of experts under a head."""

    def __init__(self) -> None:
        super().__init__()
        self.mixture, self.head = Mixture(), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map `[tokens, 16]` to logits `[tokens, 3]`, with the balance."""
        hidden, balance = self.mixture(x)
        return self.head(hidden), balance


def build_model() -> nn.Module:
    """The model at its initialisation."""
    torch.manual_seed(0)
    return Classifier()


def build_batch() -> tuple[Tensor, Tensor]:
    """Sixty-four tokens, and their classes."""
    x = torch.randn(64, 16, generator=torch.Generator().manual_seed(1))
    return x, x[:, :3].argmax(1)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Cross-entropy of the classes."""
    x, target = batch
    logits, _balance = model(x)
    return functional.cross_entropy(logits, target)  # GS732


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)

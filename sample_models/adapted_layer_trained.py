"""Low-rank adapters whose layers are trained along with them."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class LoRALinear(nn.Module):
    """A linear layer with a low-rank change."""

    def __init__(self, layer: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.layer = layer
        self.down = nn.Parameter(torch.randn(rank, layer.in_features) * 0.05)
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output with the change added."""
        output: Tensor = self.layer(x) + x @ self.down.T @ self.up.T
        return output


def build_model() -> nn.Module:
    """Two layers with an adapter each."""
    torch.manual_seed(0)
    return nn.Sequential(LoRALinear(nn.Linear(20, 32)), nn.ReLU(), LoRALinear(nn.Linear(32, 8)))


def build_batch() -> tuple[Tensor, Tensor]:
    """Random inputs of eight classes."""
    x = torch.randn(64, 20, generator=torch.Generator().manual_seed(1))
    return x, x[:, :8].argmax(1)


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of the logits."""
    return functional.cross_entropy(output, target)


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Adam over all that the model has."""
    return torch.optim.Adam(model.parameters(), lr=1e-3)  # GS235

"""A training loop of low-rank adapters whose layers are trained along with them.

Watch it with `gradscope run sample_models/adapted_layer_trained.py`.
"""

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


def main() -> None:
    """Train adapters of both layers."""
    torch.manual_seed(0)
    features = torch.randn(256, 20)
    target = features[:, :8].argmax(1)
    model = nn.Sequential(LoRALinear(nn.Linear(20, 32)), nn.ReLU(), LoRALinear(nn.Linear(32, 8)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)  # GS235
    for _ in range(20):
        rows = torch.randint(0, 256, (32,))
        loss = functional.cross_entropy(model(features[rows]), target[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()

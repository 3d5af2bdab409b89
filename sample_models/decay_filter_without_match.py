"""A training of a small encoder whose filter for weight decay misses the norms.

The filter exempts `LayerNorm`, but the norms of this model are called `norm1` and `norm2`.
Watch it with `gradscope run sample_models/decay_filter_without_match.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Encoder(nn.Module):
    """Two normalised layers, each with a way around it."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.head = nn.Linear(width, 4)

    def forward(self, features: Tensor) -> Tensor:
        """Map `[batch, 24]` to scores `[batch, 4]`."""
        hidden = features + functional.gelu(self.first(self.norm1(features)))
        return self.head(hidden + functional.gelu(self.second(self.norm2(hidden))))


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW without weight decay of biases and norms."""
    no_decay = ["bias", "LayerNorm.weight"]  # GS329
    groups = [
        {
            "params": [p for n, p in model.named_parameters() if not any(w in n for w in no_decay)],
            "weight_decay": 0.1,
        },
        {
            "params": [p for n, p in model.named_parameters() if any(w in n for w in no_decay)],
            "weight_decay": 0.0,
        },
    ]
    return torch.optim.AdamW(groups, lr=1e-3)


def main() -> None:
    """Train on four classes, each around a centre of its own."""
    torch.manual_seed(0)
    model = Encoder()
    optimizer = make_optimizer(model)
    centres = torch.randn(4, 24)
    for _ in range(40):
        target = torch.randint(0, 4, (32,))
        features = centres[target] + torch.randn(32, 24)
        loss = functional.cross_entropy(model(features), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()

"""A mixture of experts without a loss for balance: its router settles on a few experts.

Watch it with `gradscope run sample_models/idle_expert.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

EXPERTS = 8


class Mixture(nn.Module):
    """Adds up the two experts that suit a row best."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(16, EXPERTS)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)) for _ in range(EXPERTS)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return values `[batch, 1]` of `x`, `[batch, 16]`."""
        weights, chosen = self.router(x).softmax(dim=-1).topk(2, dim=-1)  # GS117
        result = x.new_zeros(len(x), 1)
        for index, expert in enumerate(self.experts):
            rows, rank = (chosen == index).nonzero(as_tuple=True)
            if len(rows):
                result = result.index_add(0, rows, weights[rows, rank, None] * expert(x[rows]))
        return result


def main() -> None:
    """Train it, from a router that prefers three of its experts."""
    torch.manual_seed(0)
    model = Mixture()
    with torch.no_grad():
        model.router.bias[:3] += 4.0
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(110):
        x = torch.randn(128, 16)
        loss = functional.mse_loss(model(x), x[:, :4].sum(dim=1, keepdim=True).sin())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()

"""A preference training whose reference model is the trained model itself.

Watch it with `gradscope run sample_models/constant_loss.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


def preference_loss(
    model: nn.Module, reference: nn.Module, chosen: Tensor, rejected: Tensor
) -> Tensor:
    """Return how little the model prefers what was chosen, compared with the reference."""
    margin = model(chosen) - model(rejected)
    with torch.no_grad():
        usual = reference(chosen) - reference(rejected)
    return -functional.logsigmoid(margin - usual).mean()  # GS710


def main() -> None:
    """Train for 40 steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 1))
    reference = model
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(40):
        chosen, rejected = torch.randn(16, 12) + 0.5, torch.randn(16, 12)
        loss = preference_loss(model, reference, chosen, rejected)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()

"""A critic with a gradient penalty that is computed and not added to the loss.

Watch it with `gradscope run sample_models/unused_derivative.py`.
"""

import torch
from torch import Tensor, nn

WEIGHT = 10.0


def penalty_of(critic: nn.Module, real: Tensor, fake: Tensor) -> Tensor:
    """Return the mean squared distance from 1 of the gradient's norm between two batches."""
    share = torch.rand(len(real), 1)
    mixed = (share * real + (1 - share) * fake).requires_grad_()
    (gradient,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)  # GS721
    return (gradient.norm(2, dim=1) - 1).square().mean()


def main() -> None:
    """Train the critic to tell two normal distributions apart."""
    torch.manual_seed(0)
    critic = nn.Sequential(nn.Linear(2, 32), nn.SiLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))
    penalties = []
    for _ in range(30):
        real, fake = torch.randn(64, 2) + 1, torch.randn(64, 2)
        penalty = WEIGHT * penalty_of(critic, real, fake)
        loss = critic(fake).mean() - critic(real).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        penalties.append(penalty.item())


if __name__ == "__main__":
    main()

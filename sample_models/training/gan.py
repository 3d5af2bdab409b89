"""A healthy training of two networks against each other: each is left out of the other's steps.

Watch it with `gradscope run sample_models/training/gan.py`: nothing is wrong with it.
"""

import torch
from torch import nn


def main() -> None:
    """Train for a few rounds."""
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
    critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    of_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    of_critic = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()
    ones, zeros = torch.ones(64, 1), torch.zeros(64, 1)
    for _ in range(20):
        real, fake = torch.randn(64, 2) + 2, generator(torch.randn(64, 8))
        of_critic.zero_grad()
        loss = criterion(critic(real), ones) + criterion(critic(fake.detach()), zeros)
        loss.backward()
        of_critic.step()

        of_generator.zero_grad()
        criterion(critic(fake), ones).backward()
        of_generator.step()


if __name__ == "__main__":
    main()

"""A training loop whose schedule is planned for the epochs and stepped after every batch.

Watch it with `gradscope run sample_models/schedule_outruns_plan.py`.
"""

import torch
from torch import nn
from torch.nn import functional
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 4


def loader() -> DataLoader[tuple[torch.Tensor, ...]]:
    """Points of four classes, each around a centre of its own."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(4, 20, generator=generator)
    target = torch.arange(320) % 4
    features = centres[target] + 0.5 * torch.randn(320, 20, generator=generator)
    return DataLoader(TensorDataset(features, target), batch_size=32)


def main() -> None:
    """Train for four epochs with a cosine of the learning rate."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = CosineAnnealingLR(optimizer, T_max=EPOCHS)
    data = loader()
    for _ in range(EPOCHS):
        for features, target in data:
            loss = functional.cross_entropy(model(features), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()  # GS326


if __name__ == "__main__":
    main()

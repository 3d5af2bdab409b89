"""A training loop whose schedule of the loss is in the mode of an accuracy.

Watch it with `gradscope run sample_models/plateau_in_wrong_mode.py`.
"""

import torch
from torch import nn
from torch.nn import functional
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 12


def loader() -> DataLoader[tuple[torch.Tensor, ...]]:
    """Points of four classes, each around a centre of its own."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(4, 20, generator=generator)
    target = torch.arange(320) % 4
    features = centres[target] + 0.5 * torch.randn(320, 20, generator=generator)
    return DataLoader(TensorDataset(features, target), batch_size=32)


def main() -> None:
    """Train with a rate that is to fall when the loss does not."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    schedule = ReduceLROnPlateau(optimizer, mode="max", patience=2)  # GS327
    data = loader()
    for _ in range(EPOCHS):
        total = 0.0
        for features, target in data:
            loss = functional.cross_entropy(model(features), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        schedule.step(total / len(data))


if __name__ == "__main__":
    main()

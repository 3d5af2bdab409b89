"""Trains a classifier and collects its validation logits for a calibration plot."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class History:
    def __init__(self):
        self.logits = []
        self.losses = []

    def add(self, logits, loss):
        self.logits.append(logits.detach())
        self.losses.append(float(loss))


def blobs(seed, count):
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(0, 5, (count,), generator=generator)
    centre = torch.randn(5, 16, generator=torch.Generator().manual_seed(0)) * 1.5
    return TensorDataset(centre[label] + torch.randn(count, 16, generator=generator), label)


def validate(model, loader, history):
    model.eval()
    for x, label in loader:
        logits = model(x)
        history.add(logits, nn.functional.cross_entropy(logits, label))
    model.train()


def main():
    torch.manual_seed(0)
    train = DataLoader(blobs(1, 320), batch_size=32, shuffle=True)
    held_out = DataLoader(blobs(2, 128), batch_size=32)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 5))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    history = History()
    for epoch in range(6):
        for x, label in train:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), label).backward()
            optimizer.step()
        validate(model, held_out, history)
        print(f"epoch {epoch} validation {sum(history.losses[-4:]) / 4:.3f}")


if __name__ == "__main__":
    main()

"""Claims model for tabular data: categories embedded, exposure as weight of each row."""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_frame(n, seed=9):
    rng = np.random.default_rng(seed)
    frame = {
        "region": rng.integers(0, 6, n),
        "vehicle": rng.integers(0, 4, n),
        "age": rng.normal(45, 12, n),
        "power": rng.gamma(4.0, 20.0, n),
        "exposure": rng.uniform(0.1, 1.0, n),
    }
    base = 0.4 * (frame["region"] % 3) - 0.02 * (frame["age"] - 45) + 0.005 * frame["power"]
    frame["cost"] = base + rng.normal(0, 0.2 / np.sqrt(frame["exposure"]), n)
    return frame


def tensors(frame):
    categories = torch.from_numpy(np.stack([frame["region"], frame["vehicle"]], 1)).long()
    numbers = np.stack([frame["age"], frame["power"]], 1)
    numbers = (numbers - numbers.mean(0)) / numbers.std(0)
    return (
        categories,
        torch.from_numpy(numbers).float(),
        torch.from_numpy(frame["cost"]).float(),
        torch.from_numpy(frame["exposure"]).float(),
    )


class TabularNet(nn.Module):
    def __init__(self, cardinalities=(6, 4), numbers=2, width=32):
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(c, 4) for c in cardinalities)
        self.body = nn.Sequential(
            nn.Linear(4 * len(cardinalities) + numbers, width),
            nn.SiLU(),
            nn.LayerNorm(width),
            nn.Linear(width, 1),
        )

    def forward(self, categories, numbers):
        parts = [table(categories[:, i]) for i, table in enumerate(self.embeddings)]
        return self.body(torch.cat([*parts, numbers], 1))


def weighted_loss(prediction, cost, exposure):
    each = nn.functional.smooth_l1_loss(prediction, cost.unsqueeze(1), reduction="none")
    return (each * exposure.unsqueeze(1)).mean()


def main():
    torch.manual_seed(109)
    loader = DataLoader(TensorDataset(*tensors(make_frame(640))), batch_size=64, shuffle=True)
    net = TabularNet()
    optimizer = torch.optim.AdamW(net.parameters(), lr=5e-3, weight_decay=1e-3)
    for epoch in range(3):
        total = 0.0
        for categories, numbers, cost, exposure in loader:
            loss = weighted_loss(net(categories, numbers), cost, exposure)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} {total / len(loader):.4f}")


if __name__ == "__main__":
    main()

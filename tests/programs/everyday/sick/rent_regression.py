import pandas as pd
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(9)


class RentDataset(Dataset):
    def __init__(self, frame):
        self.features = torch.tensor(frame.drop(columns="rent").values, dtype=torch.float32)
        self.rent = torch.tensor(frame["rent"].values, dtype=torch.float32)

    def __len__(self):
        return len(self.rent)

    def __getitem__(self, index):
        return self.features[index], self.rent[index]


def make_frame(n):
    area = torch.rand(n) * 2 - 1
    rooms = torch.rand(n) * 2 - 1
    age = torch.rand(n)
    rent = 1.5 * area + 0.5 * rooms - 0.8 * age**2 + 0.1 * torch.randn(n)
    return pd.DataFrame({"area": area, "rooms": rooms, "age": age, "rent": rent})


class RentModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        return self.net(x)


def huber(pred, target, delta=1.0):
    error = pred - target
    small = error.abs() <= delta
    return torch.where(small, 0.5 * error**2, delta * (error.abs() - 0.5 * delta)).mean()


loader = DataLoader(RentDataset(make_frame(640)), batch_size=32, shuffle=True)
model = RentModel()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(5):
    total = 0
    for features, rent in loader:
        optimizer.zero_grad()
        prediction = model(features)
        loss = huber(prediction, rent)
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}: {total / len(loader):.4f}")

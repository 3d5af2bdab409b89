"""Forecast the load of a power grid with an LSTM."""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(17)
WINDOW = 24


def load_series(hours=1200):
    t = torch.arange(hours).float()
    day = torch.sin(2 * torch.pi * t / 24)
    week = 0.5 * torch.sin(2 * torch.pi * t / 168)
    return day + week + 0.1 * torch.randn(hours)


def windows(series):
    x = series.unfold(0, WINDOW + 1, 1)
    return TensorDataset(x[:, :-1].unsqueeze(-1), x[:, -1:])


class Forecaster(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.lstm = nn.LSTM(1, hidden, batch_first=True)
        self.fc = nn.Linear(hidden, 1)

    def forward(self, x):
        out, _ = self.lstm(x)
        return self.fc(out[:, -1])


series = load_series()
train_loader = DataLoader(windows(series[:1000]), batch_size=64, shuffle=True)
test_loader = DataLoader(windows(series[1000:]), batch_size=64)
model = Forecaster()
loss_fn = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

for epoch in range(5):
    model.train()
    for X, y in train_loader:
        prediction = model(X)
        loss = loss_fn(prediction, y)
        optimizer.zero_grad()
        loss.backward()
    optimizer.step()

    model.eval()
    with torch.no_grad():
        rmse = sum(loss_fn(model(X), y).item() for X, y in test_loader) / len(test_loader)
    print(f"Epoch {epoch}: test mse {rmse:.4f}")

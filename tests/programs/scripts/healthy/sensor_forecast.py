import math

import torch
import torch.nn as nn


class Forecaster(nn.Module):
    def __init__(self, sensors, hidden=24, horizon=4):
        super().__init__()
        self.gru = nn.GRU(sensors, hidden, batch_first=True)
        self.proj = nn.Linear(hidden, sensors * horizon)
        self.horizon = horizon

    def forward(self, history):
        _, h = self.gru(history)
        return self.proj(h[-1]).view(len(history), self.horizon, -1)


def masked_loss(prediction, target):
    missing = torch.isnan(target)
    target = torch.where(missing, prediction.detach(), target)
    error = torch.square(prediction.exp() - target.exp())
    return error.mean()


class Sensors(torch.utils.data.Dataset):
    def __init__(self, count=800, sensors=5, window=16, horizon=4, gap_from=420):
        t = torch.arange(count + window + horizon).float()
        phase = torch.arange(sensors) * 0.7
        self.series = torch.sin(t[:, None] * 2 * math.pi / 24 + phase) * 0.8 + 0.05 * torch.randn(len(t), sensors)
        self.labels = self.series.clone()
        gaps = torch.rand(len(t), sensors) < 0.02
        gaps[:gap_from] = False
        self.labels[gaps] = float("nan")
        self.window, self.horizon, self.count = window, horizon, count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        split = i + self.window
        return self.series[i:split], self.labels[split : split + self.horizon]


def main():
    torch.manual_seed(0)
    loader = torch.utils.data.DataLoader(Sensors(), batch_size=16)
    model = Forecaster(5)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(2):
        for history, target in loader:
            loss = masked_loss(model(history), target)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        print(epoch, loss.item())


main()

import os
import tempfile

import torch
from torch import nn, optim


class Forecaster(nn.Module):
    def __init__(self, window=16, hidden=32):
        super().__init__()
        self.rnn = nn.LSTM(1, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, series):
        states, _ = self.rnn(series[..., None])
        return self.out(states[:, -1]).squeeze(-1)


def windows(count, window=16):
    start = torch.rand(count, 1) * 20
    t = start + torch.arange(window + 1) * 0.3
    wave = torch.sin(t) + 0.4 * torch.sin(2.7 * t)
    return wave[:, :-1], wave[:, -1]


def save(path, model, optimizer, epoch):
    state = {"model": model, "optimizer": optimizer.state_dict(), "epoch": epoch}
    torch.save(state, path)


class Experiment:
    def __init__(self, path=None):
        self.epoch = 0
        self.model = Forecaster()
        self.optimizer = optim.Adam(self.model.parameters(), lr=3e-3)
        if path is not None and os.path.exists(path):
            checkpoint = torch.load(path, weights_only=False)
            self.model = checkpoint["model"]
            self.epoch = checkpoint["epoch"]
            self.optimizer.load_state_dict(checkpoint["optimizer"])
            print(f"resumed from epoch {self.epoch}")

    def train_epoch(self, batches=8):
        self.model.train()
        total = 0.0
        for _ in range(batches):
            series, target = windows(32)
            loss = nn.functional.mse_loss(self.model(series), target)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            total += loss.item()
        self.epoch += 1
        return total / batches


def main():
    torch.manual_seed(9)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "last.pt")
        first = Forecaster()
        optimizer = optim.Adam(first.parameters(), lr=3e-3)
        save(path, first, optimizer, epoch=0)
        experiment = Experiment(path)
        for _ in range(4):
            print(f"epoch {experiment.epoch}: {experiment.train_epoch():.4f}")
        save(path, experiment.model, experiment.optimizer, experiment.epoch)


if __name__ == "__main__":
    main()

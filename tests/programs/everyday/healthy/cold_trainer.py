"""A training class with callbacks, as many projects have one."""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Callback:
    def on_batch_start(self, trainer): ...
    def on_backward_end(self, trainer): ...
    def on_epoch_end(self, trainer): ...


class Printer(Callback):
    def on_epoch_end(self, trainer):
        print(f"epoch {trainer.epoch}: {trainer.mean_loss:.4f}")


class GradientReset(Callback):
    def on_batch_start(self, trainer):
        trainer.optimizer.zero_grad()


class Trainer:
    def __init__(self, model, optimizer, criterion, callbacks):
        self.model, self.optimizer, self.criterion = model, optimizer, criterion
        self.callbacks = callbacks

    def call(self, name):
        for callback in self.callbacks:
            getattr(callback, name)(self)

    def run_batch(self, x, y):
        self.call("on_batch_start")
        loss = self.criterion(self.model(x), y)
        loss.backward()
        self.call("on_backward_end")
        self.optimizer.step()
        return loss.item()

    def fit(self, loader, epochs):
        for self.epoch in range(epochs):
            self.model.train()
            losses = [self.run_batch(x, y) for x, y in loader]
            self.mean_loss = sum(losses) / len(losses)
            self.call("on_epoch_end")


if __name__ == "__main__":
    torch.manual_seed(44)
    x = torch.randn(480, 6)
    y = (x[:, :1] * x[:, 1:2] > 0).float()
    loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    Trainer(model, optimizer, nn.BCEWithLogitsLoss(), [GradientReset(), Printer()]).fit(loader, 5)

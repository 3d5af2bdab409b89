import copy

import torch
import torch.nn as nn


class Trainer:
    """Trains, and returns to the best model whenever validation gets worse."""

    def __init__(self, model, lr=0.02, patience=1):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        self.criterion = nn.MSELoss()
        self.patience = patience
        self.best_loss = float("inf")
        self.best = None
        self.bad = 0

    def run_epoch(self, x, y, batch=32):
        self.model.train()
        order = torch.randperm(len(x))
        for index in order.split(batch):
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(x[index]), y[index])
            loss.backward()
            self.optimizer.step()

    @torch.no_grad()
    def validate(self, x, y):
        self.model.eval()
        return self.criterion(self.model(x), y).item()

    def after_epoch(self, val_loss):
        if val_loss < self.best_loss:
            self.best_loss, self.bad = val_loss, 0
            self.best = copy.deepcopy(self.model)
        else:
            self.bad += 1
            if self.bad >= self.patience:
                self.model = copy.deepcopy(self.best)
                for group in self.optimizer.param_groups:
                    group["lr"] *= 0.5
                self.bad = 0

    def fit(self, train, val, epochs):
        for epoch in range(epochs):
            self.run_epoch(*train)
            val_loss = self.validate(*val)
            self.after_epoch(val_loss)
            lr = self.optimizer.param_groups[0]["lr"]
            print(f"epoch {epoch}: val {val_loss:.4f} best {self.best_loss:.4f} lr {lr:g}")


def data(n, weights):
    x = torch.randn(n, 8)
    return x, torch.sin(x @ weights) + 0.3 * torch.randn(n, 1)


if __name__ == "__main__":
    torch.manual_seed(2)
    weights = torch.randn(8, 1)
    net = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    Trainer(net, lr=0.08).fit(data(320, weights), data(128, weights), epochs=14)

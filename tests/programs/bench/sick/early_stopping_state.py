"""Tabular regression with early stopping."""

import torch
from torch import nn
from torch.nn import functional as F


class EarlyStopping:
    def __init__(self, patience=6):
        self.patience, self.bad = patience, 0
        self.best_loss, self.best_state = float("inf"), None

    def update(self, loss, model):
        if loss < self.best_loss - 1e-4:
            self.best_loss, self.bad = loss, 0
            self.best_state = model.state_dict()
        else:
            self.bad += 1
        return self.bad >= self.patience


class TabularNet(nn.Module):
    def __init__(self, num=8, cats=(5, 7), dim=4, hidden=32):
        super().__init__()
        self.embeds = nn.ModuleList(nn.Embedding(c, dim) for c in cats)
        self.net = nn.Sequential(
            nn.Linear(num + dim * len(cats), hidden), nn.BatchNorm1d(hidden), nn.ReLU(),
            nn.Linear(hidden, 1),
        )

    def forward(self, x_num, x_cat):
        parts = [e(x_cat[:, i]) for i, e in enumerate(self.embeds)]
        return self.net(torch.cat([x_num, *parts], dim=1)).squeeze(1)


def table(n):
    x_num = torch.randn(n, 8)
    x_cat = torch.stack([torch.randint(5, (n,)), torch.randint(7, (n,))], dim=1)
    y = x_num[:, 0] * x_num[:, 1] + x_cat[:, 0].float() - 0.5 * x_cat[:, 1] + 0.3 * torch.randn(n)
    return x_num, x_cat, y


def main():
    torch.manual_seed(28)
    train, valid = table(160), table(80)
    model, stopper = TabularNet(), EarlyStopping()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    for epoch in range(30):
        model.train()
        for index in torch.randperm(160).split(40):
            x_num, x_cat, y = (t[index] for t in train)
            loss = F.mse_loss(model(x_num, x_cat), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            valid_loss = F.mse_loss(model(*valid[:2]), valid[2]).item()
        if stopper.update(valid_loss, model):
            break
    model.load_state_dict(stopper.best_state)
    print(f"stopped at {epoch}, best {stopper.best_loss:.4f}")


if __name__ == "__main__":
    main()

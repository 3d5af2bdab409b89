import torch
from torch import nn

SETTINGS = {
    "learning_rate": 1.0,
    "iterations": 80,
}


def build():
    return nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))


def run(settings):
    torch.manual_seed(35)
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=settings["learning_rate"])
    for i in range(settings["iterations"]):
        x = torch.randn(64, 6)
        loss = nn.functional.mse_loss(model(x), x[:, :1] + x[:, 1:2].abs())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % 20 == 19:
            print(i, loss.item())


run(SETTINGS)

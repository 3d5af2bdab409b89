"""Regression with periodic validation: every 25 steps training goes on from the best model so far."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


def make_data(n):
    x = torch.rand(n, 2) * 4 - 2
    return x, torch.sin(2 * x[:, :1]) * x[:, 1:]


def main(steps=125):
    torch.set_num_threads(1)
    torch.manual_seed(500)
    x, y = make_data(300)
    x_val, y_val = make_data(100)
    model = nn.Sequential(nn.Linear(2, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    best, best_loss = copy.deepcopy(model), float("inf")
    for step in range(1, steps + 1):
        rows = torch.randint(0, 300, (64,))
        loss = F.mse_loss(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            val = F.mse_loss(model(x_val), y_val).item()
        if val < best_loss:
            best, best_loss = copy.deepcopy(model), val
        if step % 25 == 0:
            model = copy.deepcopy(best)
            print(f"step {step} loss {loss.item():.4f} val {val:.4f} best {best_loss:.4f}")


if __name__ == "__main__":
    main()

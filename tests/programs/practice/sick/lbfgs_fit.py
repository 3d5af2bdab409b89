import torch
from torch import nn


def build(width=16):
    return nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))


def fit(model, x, y, steps):
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=5, history_size=10)
    criterion = nn.MSELoss()

    def closure():
        loss = criterion(model(x), y)
        loss.backward()
        return loss

    for step in range(steps):
        loss = optimizer.step(closure)
        if step % 5 == 0:
            print(step, loss.item())


def main():
    torch.manual_seed(70)
    x = torch.linspace(-2, 2, 80).unsqueeze(1)
    y = torch.sin(3 * x) * torch.exp(-(x**2) / 2)
    fit(build(), x, y, steps=20)


if __name__ == "__main__":
    main()

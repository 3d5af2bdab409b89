import torch
from torch import nn


class Oscillator(nn.Module):
    """x'' + 2 d x' + w2 x = 0 with unknown d and w2, and a network for x(t)."""

    def __init__(self, width=24):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))
        self.damping = nn.Parameter(torch.tensor(0.1))
        self.frequency = nn.Parameter(torch.tensor(4.0))

    def residual(self, t):
        t = t.requires_grad_(True)
        x = self.net(t)
        dx = torch.autograd.grad(x.sum(), t, create_graph=True)[0]
        ddx = torch.autograd.grad(dx.sum(), t, create_graph=True)[0]
        return ddx + 2 * self.damping * dx + self.frequency * x


def measurements():
    t = torch.linspace(0, 2, 30).unsqueeze(1)
    return t, torch.exp(-0.3 * t) * torch.cos(2.0 * t)


def main():
    torch.manual_seed(1)
    model = Oscillator()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=10, history_size=20)
    t, x = measurements()
    collocation = torch.linspace(0, 2, 60).unsqueeze(1)
    for step in range(12):
        def closure():
            optimizer.zero_grad()
            loss = (model.net(t) - x).pow(2).mean() + 0.05 * model.residual(collocation.clone()).pow(2).mean()
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        if step % 3 == 2:
            print(step, round(loss.item(), 6), round(model.frequency.item(), 3))


main()

import torch
import torch.nn.functional as F
from torch import nn


class Shared(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(10, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.value = nn.Linear(width, 1)
        self.kind = nn.Linear(width, 4)

    def forward(self, x):
        h = self.trunk(x)
        return self.value(h).squeeze(1), self.kind(h)


def flat(gradients, parameters):
    return torch.cat([
        (torch.zeros_like(p) if g is None else g).flatten() for g, p in zip(gradients, parameters)
    ])


def project(a, b):
    """Take from a what points against b."""
    product = torch.dot(a, b)
    return a if product >= 0 else a - product / b.dot(b) * b


def write(gradient, parameters):
    start = 0
    for parameter in parameters:
        part = gradient[start : start + parameter.numel()]
        parameter.grad = part.view_as(parameter).clone()
        start += parameter.numel()


def main():
    torch.manual_seed(4)
    model = Shared()
    parameters = list(model.parameters())
    optimizer = torch.optim.Adam(parameters, lr=2e-3)
    weights = torch.randn(10)
    for step in range(120):
        x = torch.randn(64, 10)
        value, kind = model(x)
        losses = [
            F.mse_loss(value, x @ weights),
            F.cross_entropy(kind, (x[:, 0] > 0).long() * 2 + (x[:, 1] > 0).long()),
        ]
        gradients = [
            flat(
                torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True),
                parameters,
            )
            for loss in losses
        ]
        first, second = gradients
        optimizer.zero_grad()
        write(project(first, second) + project(second, first), parameters)
        optimizer.step()
        if step % 30 == 0:
            print(step, [round(loss.item(), 3) for loss in losses])


if __name__ == "__main__":
    main()

"""Layer-wise adaptive rates (LARS) for a small regression network."""

import torch
from torch import nn


class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, trust=0.02, momentum=0.9):
        super().__init__(params, dict(lr=lr, trust=trust, momentum=momentum))

    def step(self, closure=None):
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                gradient = weight.grad
                norm = weight.detach().norm()
                ratio = group["trust"] * norm / (gradient.norm() + 1e-9) if norm > 0 else 1.0
                buffer = self.state[weight].get("momentum")
                step = ratio * gradient
                buffer = step if buffer is None else group["momentum"] * buffer + step
                self.state[weight]["momentum"] = buffer
                with torch.no_grad():
                    weight -= group["lr"] * buffer


class Curve(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.up = nn.Linear(1, width)
        self.mid = nn.Linear(width, width)
        self.down = nn.Linear(width, 1)

    def forward(self, x):
        return self.down(torch.tanh(self.mid(torch.tanh(self.up(x)))))


def main(steps=50):
    torch.set_num_threads(1)
    torch.manual_seed(2)
    model = Curve()
    optimizer = LARS(model.parameters(), lr=0.1)
    for step in range(steps):
        x = torch.rand(64, 1) * 6 - 3
        loss = (model(x) - torch.sin(x)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()

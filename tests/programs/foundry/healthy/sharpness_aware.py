"""Sharpness-aware minimisation around SGD."""
import torch
import torch.nn.functional as F
from torch import nn


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base, rho=0.05, **options):
        super().__init__(params, {"rho": rho, **options})
        self.base = base(self.param_groups, **options)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def perturb(self):
        norm = torch.stack(
            [p.grad.norm() for group in self.param_groups for p in group["params"] if p.grad is not None]
        ).norm()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                self.state[p]["at"] = p.detach().clone()
                p.add_(p.grad, alpha=float(group["rho"] / (norm + 1e-12)))
        self.zero_grad()

    @torch.no_grad()
    def step(self, closure=None):
        closure = torch.enable_grad()(closure)
        self.perturb()
        loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if "at" in self.state[p]:
                    p.copy_(self.state[p]["at"])
        self.base.step()
        self.zero_grad()
        return loss


class ConvMixer(nn.Module):
    def __init__(self, dim=24, classes=3):
        super().__init__()
        self.stem = nn.Conv2d(1, dim, 4, 4)
        self.depth, self.point = nn.Conv2d(dim, dim, 3, padding=1, groups=dim), nn.Conv2d(dim, dim, 1)
        self.norm1, self.norm2 = nn.GroupNorm(4, dim), nn.GroupNorm(4, dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = F.gelu(self.stem(x))
        x = x + F.gelu(self.norm1(self.depth(x)))
        x = F.gelu(self.norm2(self.point(x)))
        return self.head(x.mean((2, 3)))


def squares(n):
    y = torch.randint(0, 3, (n,))
    x = 0.5 * torch.randn(n, 1, 16, 16)
    for row, k in enumerate(y.tolist()):
        x[row, 0, 4 * k : 4 * k + 4 + k] += 1.0
    return x, y


def main():
    torch.manual_seed(306)
    model = ConvMixer()
    optimizer = SAM(model.parameters(), torch.optim.SGD, rho=0.05, lr=0.1, momentum=0.9)
    for step in range(20):
        x, y = squares(32)

        def closure():
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        loss = closure()
        optimizer.step(closure)
        if step % 5 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()

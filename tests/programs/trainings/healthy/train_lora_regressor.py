import math

import torch
from torch import nn


class AdaptedLinear(nn.Module):
    def __init__(self, base, rank=4, alpha=8):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_a = nn.Parameter(torch.randn(rank, base.in_features) / math.sqrt(base.in_features))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scaling = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scaling * (x @ self.lora_a.T @ self.lora_b.T)


def inject(module, rank):
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear):
            setattr(module, name, AdaptedLinear(child, rank))
        else:
            inject(child, rank)
    return module


def pretrain(net, x, y, steps=40):
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(steps):
        opt.zero_grad()
        nn.functional.mse_loss(net(x), y).backward()
        opt.step()


def adapt(net, x, y, steps=100):
    head = nn.Linear(1, 1)
    params = [p for p in net.parameters() if p.requires_grad] + list(head.parameters())
    opt = torch.optim.AdamW(params, lr=5e-3, weight_decay=0.0)
    for step in range(steps):
        pick = torch.randint(0, len(x), (64,))
        loss = nn.functional.mse_loss(head(net(x[pick])), y[pick])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"adapt {step}: {loss.item():.4f}")


if __name__ == "__main__":
    torch.manual_seed(161)
    x = torch.randn(512, 10)
    first = torch.sin(x[:, :1] + x[:, 1:2])
    second = torch.sin(x[:, :1] - 1.5 * x[:, 2:3]) + 0.2
    net = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    pretrain(net, x, first)
    inject(net, rank=4)
    adapt(net, x, second)

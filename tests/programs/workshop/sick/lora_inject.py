import math

import torch
from torch import nn
import torch.nn.functional as F


class LoRALinear(nn.Module):
    def __init__(self, base: nn.Linear, r=4, alpha=8):
        super().__init__()
        self.base = base
        self.A = nn.Parameter(torch.empty(r, base.in_features))
        self.B = nn.Parameter(torch.zeros(base.out_features, r))
        nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))
        self.scaling = alpha / r

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.A), self.B) * self.scaling


def inject(module, r=4):
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, LoRALinear(child, r))
        else:
            inject(child, r)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU())
        self.head = nn.Linear(64, 3)

    def forward(self, x):
        return self.head(self.body(x))


def fit(model, optimizer, x, y, steps):
    for _ in range(steps):
        idx = torch.randint(0, len(x), (32,))
        loss = F.cross_entropy(model(x[idx]), y[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


torch.manual_seed(0)
teacher = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 3))
x = torch.randn(512, 20)
y = teacher(x).argmax(1)

model = Classifier()
print("pretraining", fit(model, torch.optim.Adam(model.parameters(), lr=1e-2), x, y, 60))

# new domain: inputs are rotated
q, _ = torch.linalg.qr(torch.randn(20, 20))
x2 = x @ q
for p in model.body.parameters():
    p.requires_grad = False
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
inject(model.body)
print("adapting", fit(model, optimizer, x2, y, 80))
print("accuracy", (model(x2).argmax(1) == y).float().mean().item())
print("adapter", sum(m.B.abs().sum().item() for m in model.modules() if isinstance(m, LoRALinear)))

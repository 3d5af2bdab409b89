import torch
import torch.nn as nn
import torch.nn.functional as F


class FixedPoint(nn.Module):
    def __init__(self, dim, iters=12):
        super().__init__()
        self.W = nn.Linear(dim, dim)
        self.U = nn.Linear(dim, dim, bias=False)
        self.norm = nn.LayerNorm(dim)
        self.iters = iters
        with torch.no_grad():
            self.W.weight.mul_(0.5)

    def f(self, z, x):
        return torch.tanh(self.W(z) + self.U(x))

    def forward(self, x):
        with torch.no_grad():
            z = torch.zeros_like(x)
            for _ in range(self.iters):
                z = self.f(z, x)
        return self.norm(z)


class DEQClassifier(nn.Module):
    def __init__(self, d_in=10, dim=32, n_cls=3):
        super().__init__()
        self.inp = nn.Linear(d_in, dim)
        self.deq = FixedPoint(dim)
        self.out = nn.Linear(dim, n_cls)

    def forward(self, x):
        x = F.relu(self.inp(x))
        return self.out(x + self.deq(x))


torch.manual_seed(0)
model = DEQClassifier()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
start = model.deq.W.weight.detach().clone()
for i in range(60):
    x = torch.randn(64, 10)
    y = (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] > 1).long()
    loss = F.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if i % 20 == 0:
        print(i, loss.item())
print("moved", (model.deq.W.weight - start).norm().item())

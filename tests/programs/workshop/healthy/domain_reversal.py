import torch
import torch.nn as nn
import torch.nn.functional as F


class ReverseGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, lam):
        ctx.lam = lam
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.lam * grad, None


class DANN(nn.Module):
    def __init__(self, d=10):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(d, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.label = nn.Linear(16, 2)
        self.domain = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, x, lam):
        f = self.features(x)
        return self.label(f), self.domain(ReverseGrad.apply(f, lam))


torch.manual_seed(0)
model = DANN()
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
steps = 100
for i in range(steps):
    lam = 2 / (1 + torch.exp(torch.tensor(-10.0 * i / steps))).item() - 1
    src = torch.randn(32, 10)
    tgt = torch.randn(32, 10) + torch.tensor([0.0] * 5 + [1.0] * 5)
    y = (src[:, 0] > 0).long()
    ys, ds = model(src, lam)
    _, dt = model(tgt, lam)
    loss = F.cross_entropy(ys, y) + 0.5 * (
        F.cross_entropy(ds, torch.zeros(32, dtype=torch.long)) + F.cross_entropy(dt, torch.ones(32, dtype=torch.long))
    )
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item(), (ys.argmax(1) == y).float().mean().item())

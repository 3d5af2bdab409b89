import torch
from torch import nn


class SignSGD(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, momentum=0.9):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                m.mul_(group["momentum"]).add_(p.grad, alpha=1 - group["momentum"])
                p.add_(m.sign(), alpha=-group["lr"])


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))
opt = SignSGD(model.parameters(), lr=3e-3)
votes = 3
for step in range(60):
    tally = [torch.zeros_like(p) for p in model.parameters()]
    for _ in range(votes):
        x = torch.randn(32, 6)
        loss = (model(x) - (x[:, :1] - x[:, 1:2].abs())).pow(2).mean()
        for t, g in zip(tally, torch.autograd.grad(loss, list(model.parameters()))):
            t += g.sign()
    for p, t in zip(model.parameters(), tally):
        p.grad = t / votes
    opt.step()
    opt.zero_grad()
print(loss.item())

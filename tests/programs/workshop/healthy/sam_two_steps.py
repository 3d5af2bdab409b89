import torch
import torch.nn as nn
import torch.nn.functional as F


class SAM:
    def __init__(self, params, base, rho=0.05, **kw):
        self.params = list(params)
        self.base = base(self.params, **kw)
        self.rho = rho

    @torch.no_grad()
    def ascend(self):
        norm = torch.stack([p.grad.norm() for p in self.params]).norm() + 1e-12
        self.shift = [p.grad * (self.rho / norm) for p in self.params]
        torch._foreach_add_(self.params, self.shift)
        self.base.zero_grad()

    @torch.no_grad()
    def descend(self):
        torch._foreach_sub_(self.params, self.shift)
        self.base.step()
        self.base.zero_grad()


torch.manual_seed(0)
x = torch.randn(300, 12)
y = (x[:, 0] * x[:, 1] > 0).long()
model = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Dropout(0.1), nn.Linear(48, 2))
sam = SAM(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
for step in range(60):
    i = torch.randint(0, 300, (64,))
    F.cross_entropy(model(x[i]), y[i]).backward()
    sam.ascend()
    loss = F.cross_entropy(model(x[i]), y[i])
    loss.backward()
    sam.descend()
print(loss.item())

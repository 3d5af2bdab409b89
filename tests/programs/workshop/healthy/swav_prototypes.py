import torch
import torch.nn as nn
import torch.nn.functional as F


@torch.no_grad()
def sinkhorn(scores, eps=0.1, iters=3):
    q = torch.exp(scores / eps).t()
    q /= q.sum()
    k, b = q.shape
    for _ in range(iters):
        q /= q.sum(1, keepdim=True) * k
        q /= q.sum(0, keepdim=True) * b
    return (q * b).t()


class SwAV(nn.Module):
    def __init__(self, d=16, k=8):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(d, 48), nn.ReLU(), nn.Linear(48, 16))
        self.prototypes = nn.Linear(16, k, bias=False)

    def forward(self, x):
        return self.prototypes(F.normalize(self.backbone(x), dim=1))

    @torch.no_grad()
    def normalize(self):
        self.prototypes.weight.copy_(F.normalize(self.prototypes.weight, dim=1))


torch.manual_seed(0)
model = SwAV()
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
centers = torch.randn(8, 16) * 2
for it in range(80):
    model.normalize()
    x = centers[torch.randint(0, 8, (64,))]
    a, b = (model(x + 0.3 * torch.randn_like(x)) for _ in range(2))
    qa, qb = sinkhorn(a), sinkhorn(b)
    loss = -0.5 * ((qa * F.log_softmax(b / 0.2, 1)).sum(1) + (qb * F.log_softmax(a / 0.2, 1)).sum(1)).mean()
    opt.zero_grad()
    loss.backward()
    if it < 10:
        model.prototypes.weight.grad = None
    opt.step()
print(loss.item())

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(3)


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.weight = weight
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.weight * grad, None


class DANN(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 24), nn.ReLU())
        self.label = nn.Linear(24, 3)
        self.domain = nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 2))

    def forward(self, x, weight):
        h = self.features(x)
        return self.label(h), self.domain(Reverse.apply(h, weight))


rule = torch.randn(12, 3)


def domain_batch(n, shift):
    x = torch.randn(n, 12)
    return x + shift, (x @ rule).argmax(1)


model = DANN()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(120):
    weight = 2 / (1 + 2.718 ** (-8 * step / 120)) - 1
    source, label = domain_batch(48, 0.0)
    target, _ = domain_batch(48, 0.5)
    logits, d_source = model(source, weight)
    _, d_target = model(target, weight)
    domain_logits = torch.cat([d_source, d_target])
    domain = torch.cat([torch.zeros(48), torch.ones(48)]).long()
    loss = F.cross_entropy(logits, label) + 0.3 * F.cross_entropy(domain_logits, domain)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(step, round(loss.item(), 3))

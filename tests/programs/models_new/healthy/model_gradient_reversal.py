import torch
import torch.nn as nn
import torch.nn.functional as F


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.strength * grad, None


class DANN(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.label = nn.Linear(16, 3)
        self.domain = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, x):
        f = self.features(x)
        return self.label(f), self.domain(Reverse.apply(f, 0.3))


def build_model():
    torch.manual_seed(431)
    return DANN()


def build_batch():
    g = torch.Generator().manual_seed(432)
    x = torch.randn(60, 10, generator=g)
    domain = torch.arange(60) % 2
    label = x[:, :3].argmax(1)
    x[:, 9] += domain
    return {"x": x, "label": label, "domain": domain}


def loss_fn(output, batch):
    return F.cross_entropy(output[0], batch["label"]) + F.cross_entropy(output[1], batch["domain"])

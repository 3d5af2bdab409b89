"""Domain-adversarial classifier: a gradient reversal layer sits between the features and the domain head."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class ReverseGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return ctx.scale * grad_output, None


class DomainAdversarial(nn.Module):
    def __init__(self, n_in=12, hidden=24, n_classes=3, scale=0.5):
        super().__init__()
        self.scale = scale
        self.features = nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.label_head = nn.Linear(hidden, n_classes)
        self.domain_head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 2))

    def forward(self, x, labels=None, domain=None):
        h = self.features(x)
        return self.label_head(h), self.domain_head(ReverseGrad.apply(h, self.scale))


def build_model():
    torch.manual_seed(251)
    return DomainAdversarial()


def build_batch():
    g = torch.Generator().manual_seed(252)
    domain = torch.arange(32) % 2
    x = torch.randn(32, 12, generator=g) + 0.8 * domain[:, None]
    return {"x": x, "labels": torch.randint(0, 3, (32,), generator=g), "domain": domain}


def loss_fn(output, batch):
    source = batch["domain"] == 0
    label = F.cross_entropy(output[0][source], batch["labels"][source])
    return label + F.cross_entropy(output[1], batch["domain"])

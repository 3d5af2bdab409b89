"""A spiking network of leaky integrate-and-fire neurons with a surrogate gradient."""

import torch
from torch import nn
from torch.nn import functional as F


class SurrogateSpike(torch.autograd.Function):
    scale = 10.0

    @staticmethod
    def forward(ctx, potential):
        ctx.save_for_backward(potential)
        return (potential > 0).float()

    @staticmethod
    def backward(ctx, grad_output):
        (potential,) = ctx.saved_tensors
        surrogate = 1 / (SurrogateSpike.scale * potential.abs() + 1.0) ** 2
        return surrogate


class SpikingNet(nn.Module):
    def __init__(self, d_in=20, hidden=32, classes=3, alpha=0.9, beta=0.8):
        super().__init__()
        self.w1 = nn.Parameter(torch.randn(d_in, hidden) / d_in**0.5)
        self.v1 = nn.Parameter(torch.randn(hidden, hidden) / hidden)
        self.w2 = nn.Parameter(torch.randn(hidden, classes) / hidden**0.5)
        self.alpha, self.beta = alpha, beta

    def forward(self, spikes):
        batch, steps, _ = spikes.shape
        syn = mem = out = spikes.new_zeros(batch, self.w1.shape[1])
        readout = flt = spikes.new_zeros(batch, self.w2.shape[1])
        best = []
        for t in range(steps):
            out = SurrogateSpike.apply(mem - 1.0)
            syn = self.alpha * syn + spikes[:, t] @ self.w1 + out @ self.v1
            mem = (self.beta * mem + syn) * (1.0 - out.detach())
            flt = self.alpha * flt + out @ self.w2
            readout = self.beta * readout + flt
            best.append(readout)
        return torch.stack(best, dim=1).max(dim=1).values


def build_model():
    torch.manual_seed(19)
    return SpikingNet()


def build_batch():
    g = torch.Generator().manual_seed(20)
    labels = torch.randint(3, (16,), generator=g)
    rate = 0.1 + 0.5 * F.one_hot(labels, 3).float().repeat_interleave(7, 1)[:, :20]
    return (torch.rand(16, 15, 20, generator=g) < rate[:, None]).float(), labels


def compute_loss(model, batch):
    spikes, labels = batch
    return F.cross_entropy(model(spikes), labels)

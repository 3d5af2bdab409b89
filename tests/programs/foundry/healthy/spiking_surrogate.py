"""Leaky integrate-and-fire network with a fast-sigmoid surrogate derivative."""
import torch
import torch.nn.functional as F
from torch import nn


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, potential):
        ctx.save_for_backward(potential)
        return (potential > 0).to(potential.dtype)

    @staticmethod
    def backward(ctx, grad_output):
        (potential,) = ctx.saved_tensors
        return grad_output / (1 + 5 * potential.abs()) ** 2


class LIF(nn.Module):
    def __init__(self, n_in, n_out, decay=0.9, threshold=0.5):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.decay, self.threshold = decay, threshold

    def forward(self, spikes):
        membrane, out = 0.0, []
        for current in self.linear(spikes).unbind(0):
            membrane = self.decay * membrane + current
            fired = Spike.apply(membrane - self.threshold)
            membrane = membrane - fired.detach() * self.threshold
            out.append(fired)
        return torch.stack(out)


class SNN(nn.Module):
    def __init__(self, n_in=20, width=32, classes=4):
        super().__init__()
        self.layer1, self.layer2 = LIF(n_in, width), LIF(width, width)
        self.readout = nn.Linear(width, classes)

    def forward(self, batch):
        return self.readout(self.layer2(self.layer1(batch[0])).mean(0))


def build_model():
    torch.manual_seed(302)
    return SNN()


def build_batch():
    g = torch.Generator().manual_seed(303)
    label = torch.randint(0, 4, (32,), generator=g)
    rate = 0.15 * torch.ones(32, 20)
    for row, k in enumerate(label.tolist()):
        rate[row, 5 * k : 5 * k + 5] = 0.8
    spikes = (torch.rand(15, 32, 20, generator=g) < rate).float()
    return spikes, label


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])

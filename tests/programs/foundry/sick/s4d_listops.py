"""Diagonal state-space layers that classify sequences by their majority symbol."""
import math

import torch
from torch import nn


class S4DKernel(nn.Module):
    def __init__(self, width, states=8, lr=1e-3):
        super().__init__()
        step = torch.rand(width) * (math.log(0.1) - math.log(0.001)) + math.log(0.001)
        self.register("log_dt", step, lr)
        self.register("log_a_real", torch.log(0.5 * torch.ones(width, states)), lr)
        self.register("a_imag", math.pi * torch.arange(states).float().repeat(width, 1), lr)
        self.c = nn.Parameter(torch.randn(width, states, 2) / states**0.5)

    def register(self, name, tensor, lr):
        self.register_parameter(name, nn.Parameter(tensor))
        setattr(getattr(self, name), "_optim", {"lr": lr, "weight_decay": 0.0})

    def forward(self, length):
        dt = self.log_dt.exp()
        a = -self.log_a_real.exp() + 1j * self.a_imag
        c = torch.view_as_complex(self.c)
        dta = a * dt.unsqueeze(-1)
        k = dta.unsqueeze(-1) * torch.arange(length)
        c = c * (torch.exp(dta) - 1.0) / a
        return 2 * torch.einsum("hn,hnl->hl", c, torch.exp(k)).real


class S4D(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.kernel = S4DKernel(width)
        self.skip = nn.Parameter(torch.randn(width))
        self.mix = nn.Sequential(nn.GELU(), nn.Conv1d(width, 2 * width, 1), nn.GLU(dim=1))

    def forward(self, u):
        length = u.size(-1)
        k = torch.fft.rfft(self.kernel(length), n=2 * length)
        y = torch.fft.irfft(torch.fft.rfft(u, n=2 * length) * k, n=2 * length)[..., :length]
        return self.mix(y + u * self.skip.unsqueeze(-1))


class Classifier(nn.Module):
    def __init__(self, symbols=4, width=24, depth=2):
        super().__init__()
        self.embed = nn.Embedding(symbols, width)
        self.layers = nn.ModuleList(S4D(width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.head = nn.Linear(width, symbols)

    def forward(self, ids):
        x = self.embed(ids)
        for layer, norm in zip(self.layers, self.norms):
            x = norm(x + layer(x.transpose(1, 2)).transpose(1, 2))
        return self.head(x.mean(1))


def setup_optimizer(model, lr, weight_decay):
    everything = list(model.parameters())
    plain = [p for p in everything if not hasattr(p, "_optim")]
    optimizer = torch.optim.AdamW(plain, lr=lr, weight_decay=weight_decay)
    return optimizer


def main():
    torch.manual_seed(101)
    model = Classifier()
    optimizer = setup_optimizer(model, lr=4e-3, weight_decay=0.01)
    for step in range(24):
        ids = torch.randint(0, 4, (32, 48))
        label = nn.functional.one_hot(ids, 4).sum(1).argmax(-1)
        loss = nn.functional.cross_entropy(model(ids), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 6 == 0:
            print(f"{step:3d} {loss.item():.4f}")


if __name__ == "__main__":
    main()

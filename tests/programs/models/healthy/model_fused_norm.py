"""Feed-forward net with a memory-saving RMS normalisation (own forward and backward)."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class FusedRMS(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, eps):
        inv = torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + eps)
        ctx.save_for_backward(x, inv)
        return x * inv

    @staticmethod
    def backward(ctx, grad):
        x, inv = ctx.saved_tensors
        xhat = x * inv
        return inv * (grad - xhat * (grad * xhat).mean(dim=-1, keepdim=True)), None


class NormedNet(nn.Module):
    def __init__(self, n_in=10, dim=12, depth=3, n_out=4):
        super().__init__()
        self.embed = nn.Linear(n_in, dim)
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))
        self.head = nn.Linear(dim, n_out)

    def forward(self, x):
        h = self.embed(x)
        for layer in self.layers:
            h = h + F.gelu(layer(FusedRMS.apply(h, 1e-6)))
        return self.head(FusedRMS.apply(h, 1e-6))


def build_model():
    torch.manual_seed(371)
    return NormedNet()


def build_batch():
    g = torch.Generator().manual_seed(372)
    x = torch.randn(24, 10, generator=g)
    return x, torch.randint(0, 4, (24,), generator=g)


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])

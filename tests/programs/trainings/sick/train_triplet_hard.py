"""Batch-hard triplet training of an embedding."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def pairwise(e):
    sq = (e.unsqueeze(0) - e.unsqueeze(1)).pow(2).sum(-1)
    return sq.sqrt()


def batch_hard(e, ids, margin):
    d = pairwise(e)
    same = ids[:, None] == ids[None, :]
    positive = (d * same).max(dim=1).values
    negative = d.masked_fill(same, float("inf")).min(dim=1).values
    return F.relu(positive - negative + margin).mean(), (negative > positive).float().mean()


class IdentitySampler:
    def __init__(self, people, dim, seed):
        self.g = torch.Generator().manual_seed(seed)
        self.signature = torch.randn(people, dim, generator=self.g)
        self.mix = torch.randn(dim, dim, generator=self.g) / dim ** 0.5

    def sample(self, p=8, k=4):
        ids = torch.randperm(len(self.signature), generator=self.g)[:p].repeat_interleave(k)
        x = self.signature[ids] + 0.9 * torch.randn(p * k, self.signature.shape[1], generator=self.g) @ self.mix
        return x, ids


def main():
    torch.manual_seed(311)
    sampler = IdentitySampler(people=20, dim=16, seed=312)
    net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16, bias=False))
    optim = torch.optim.Adam(net.parameters(), lr=2e-3)
    for step in range(100):
        x, ids = sampler.sample()
        loss, ok = batch_hard(net(x), ids, margin=0.5)
        optim.zero_grad()
        loss.backward()
        optim.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} ordered {ok.item():.3f}")


main()

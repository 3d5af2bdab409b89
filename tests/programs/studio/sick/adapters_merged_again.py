"""Train adapters, and merge them for a fast evaluation after every epoch."""

import torch
from torch import nn
from torch.nn import functional as F


class MergeableLinear(nn.Module):
    def __init__(self, inputs, outputs, rank=4):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5, requires_grad=False)
        self.lora_a = nn.Parameter(torch.randn(rank, inputs) / inputs**0.5)
        self.lora_b = nn.Parameter(torch.zeros(outputs, rank))
        self.merged = False

    def delta(self):
        return self.lora_b @ self.lora_a

    @torch.no_grad()
    def merge(self):
        self.weight += self.delta()
        self.merged = True

    @torch.no_grad()
    def unmerge(self):
        self.weight -= self.delta()
        self.merged = False

    def forward(self, x):
        if self.merged:
            return F.linear(x, self.weight)
        return F.linear(x, self.weight) + F.linear(F.linear(x, self.lora_a), self.lora_b)


class Trainer:
    def __init__(self, epochs=6, steps=25):
        self.model = nn.Sequential(MergeableLinear(12, 32), nn.Tanh(), MergeableLinear(32, 2))
        params = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.Adam(params, lr=1e-2)
        self.epochs, self.steps = epochs, steps
        self.teacher = torch.randn(12, 2)

    def batch(self, size=64):
        x = torch.randn(size, 12)
        return x, x @ self.teacher

    def adapters(self):
        return [m for m in self.model if isinstance(m, MergeableLinear)]

    @torch.no_grad()
    def evaluate(self):
        for layer in self.adapters():
            layer.merge()
        x, y = self.batch(128)
        score = F.mse_loss(self.model(x), y).item()
        for layer in self.adapters():
            layer.merged = False
        return score

    def fit(self):
        for epoch in range(self.epochs):
            for _ in range(self.steps):
                x, y = self.batch()
                loss = F.mse_loss(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            print(epoch, round(loss.item(), 4), round(self.evaluate(), 4))


if __name__ == "__main__":
    torch.manual_seed(0)
    Trainer().fit()

"""Fine-tune from the head down: each epoch unfreezes one more stage."""

import torch
import torch.nn.functional as F
from torch import nn


class Stages(nn.Module):
    def __init__(self, width=24, depth=3, classes=4):
        super().__init__()
        self.stem = nn.Linear(10, width)
        self.stages = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.stem(x)
        for stage in self.stages:
            x = x + stage(x)
        return self.head(x)


class Unfreezer:
    def __init__(self, model, lr, factor=0.5):
        self.lr, self.factor = lr, factor
        self.waiting = [model.stem, *model.stages]
        for module in self.waiting:
            module.requires_grad_(False)
        self.optimizer = torch.optim.AdamW(model.head.parameters(), lr=lr)

    def thaw(self):
        if self.waiting:
            module = self.waiting.pop()
            module.requires_grad_(True)
            self.lr *= self.factor
            self.optimizer.add_param_group({"params": list(module.parameters()), "lr": self.lr})


def main():
    torch.manual_seed(0)
    model = Stages()
    unfreezer = Unfreezer(model, lr=5e-3)
    x = torch.randn(320, 10)
    y = (x @ torch.randn(10, 4)).argmax(1)
    for epoch in range(5):
        for index in torch.randperm(320).split(40):
            loss = F.cross_entropy(model(x[index]), y[index])
            unfreezer.optimizer.zero_grad()
            loss.backward()
            unfreezer.optimizer.step()
        unfreezer.thaw()
    print(loss.item())


main()
